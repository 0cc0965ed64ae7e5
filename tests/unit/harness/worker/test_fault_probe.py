from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.point import Point
from harness.core.trial import Budget, Limit, Trial
from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen
from harness.worker.fault import FaultProbe
from harness.worker.world import Place
from nsa.train.probe import Edge, Phase

LIMIT = Limit(seconds=1.0, source="test")


def trial(*, seed: int = 0, repeat: int = 0, layers: int = 2) -> Trial:
    return Trial(
        target="nsa",
        point=Point.of({"n_layers": layers}),
        repeat=repeat,
        role="search",
        config={},
        seed=seed,
        code="c",
        machine="m",
        budget=Budget(startup=LIMIT, stall=LIMIT, total=LIMIT),
    )


class State:
    """Runs what is armed when the test says that backward runs."""

    model = optimizer = None
    blocks = ()

    def __init__(self) -> None:
        self.armed: list = []

    def in_backward(self, callback) -> None:
        self.armed.append(callback)

    def set_loss(self, change) -> None:
        raise NotImplementedError


def planted(struck: list, **when) -> FaultProbe:
    def strike(scene: Scene) -> None:
        struck.append((scene.step, scene.state))

    specimen = Specimen(name="s", strike=strike, expect=Kind.HANG, imitates="a test", **when)
    return FaultProbe(specimen, trial=trial(), trial_dir=Path("/nowhere"))


def run(probe: FaultProbe, *, steps: int = 4) -> None:
    probe.mark(phase=Phase.BUILD, edge=Edge.BEGIN, step=None)
    probe.built(State())
    probe.mark(phase=Phase.BUILD, edge=Edge.END, step=None)
    for step in range(steps):
        for phase in (Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIM):
            for edge in (Edge.BEGIN, Edge.PROGRESS, Edge.END):
                probe.mark(phase=phase, edge=edge, step=step)


def test_it_strikes_once_at_the_phase_and_step():
    struck: list = []
    run(planted(struck, phase="optim", step=2))

    assert [step for step, _ in struck] == [2]


def test_every_step_from_its_first_on():
    struck: list = []
    run(planted(struck, phase="forward", step=1, every_step=True))

    assert [step for step, _ in struck] == [1, 2, 3]


def test_in_build_it_strikes_once_before_there_is_a_state():
    struck: list = []
    run(planted(struck, phase="build"))

    assert struck == [(0, None)]


def test_inside_backward_it_waits_for_the_engine():
    struck: list = []
    probe = planted(struck, phase="backward", step=1, inside_backward=True)
    state = State()
    probe.built(state)
    probe.mark(phase=Phase.BACKWARD, edge=Edge.BEGIN, step=1)
    assert struck == []

    (callback,) = state.armed
    callback()
    assert struck == [(1, state)]


def test_an_exception_of_the_specimen_is_the_trainers_own():
    def strike(scene: Scene) -> None:
        raise KeyError("planted")

    specimen = Specimen(name="s", strike=strike, expect=Kind.CRASH, imitates="a test")
    probe = FaultProbe(specimen, trial=trial(), trial_dir=Path("/nowhere"))

    with pytest.raises(KeyError, match="planted"):
        run(probe)


def test_its_dice_depend_on_seed_point_and_repeat_and_on_nothing_else():
    specimen = Specimen(name="s", strike=lambda scene: None, expect=Kind.PASS, imitates="a test")

    def first(**question: int) -> float:
        return FaultProbe(specimen, trial=trial(**question), trial_dir=Path("/nowhere")).scene.random()

    assert first(seed=1) == first(seed=1)
    assert len({first(), first(seed=1), first(repeat=1), first(layers=3)}) == 4
    rolls = [first(repeat=k) for k in range(400)]
    assert 90 <= sum(roll < 0.3 for roll in rolls) <= 150


def test_a_fault_of_one_rank_strikes_in_that_rank_only():
    def struck(rank: int) -> list:
        found: list = []
        specimen = Specimen(name="s", strike=found.append, expect=Kind.HANG, imitates="a test", at_rank=1, world=3)
        run(FaultProbe(specimen, trial=trial(), trial_dir=Path("/nowhere"), place=Place(rank=rank, world=3)))
        return [(scene.rank, scene.world) for scene in found]

    assert [struck(rank) for rank in range(3)] == [[], [(1, 3)], []]


def test_a_fault_before_the_ranks_meet_strikes_when_it_is_told_and_never_again():
    struck: list = []
    specimen = Specimen(name="s", strike=struck.append, expect=Kind.HANG, imitates="a test", phase="start", at_rank=0)
    probe = FaultProbe(specimen, trial=trial(), trial_dir=Path("/nowhere"))
    probe.start()
    run(probe)
    assert len(struck) == 1
    elsewhere = FaultProbe(specimen, trial=trial(), trial_dir=Path("/nowhere"), place=Place(rank=1, world=2))
    elsewhere.start()
    assert len(struck) == 1
