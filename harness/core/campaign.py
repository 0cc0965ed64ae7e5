"""Campaign: a question about many cells of a matrix, and what running them showed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from harness.core.boundary import Boundary, Claim, ScalingFit
from harness.core.cause import AxisVerdict, Cause, CellCount, Explored, Interaction, Minimised
from harness.core.errors import SpecError
from harness.core.invocation import Invocation
from harness.core.matrix import DEFAULT_EFFORT, LEARNED, Matrix
from harness.core.point import Axis, Point, Value
from harness.core.space import Bundle, Factor, Space
from harness.core.spec import Allowance, Effort, Limits
from harness.core.success import PASSES, Success
from harness.core.trial import ATTENTION, DENSE, NO_FAULT, Fault
from harness.core.verdict import Answer, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_SETTINGS = Point()

FOREIGN = "foreign"
"""Target of a question about something that somebody else started: only its words say what that is."""


class Task(StrEnum):
    """What is done with a matrix."""

    CELLS = "cells"
    BISECT = "bisect"
    MINIMISE = "minimise"
    EXPLORE = "explore"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostShard:
    """A part of a matrix that left no run: its name (``shard 2/3``), its cells, and the command that runs it."""

    name: str
    cells: tuple[Point, ...]
    invocation: Invocation


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardProgram:
    """What a shard ran: its name, its program's commit (empty where not recorded), its cells, and its command."""

    name: str
    program: str
    cells: tuple[Point, ...]
    invocation: Invocation | None


def programs_by_cell(programs: Iterable[ShardProgram]) -> dict[Point, str]:
    """What each cell ran; all of it where several shards ran the cell."""
    ran: dict[Point, str] = {}
    for shard in programs:
        for cell in shard.cells:
            others = ran.get(cell, shard.program)
            ran[cell] = others if shard.program in others.split(", ") else f"{others}, {shard.program}"
    return ran


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignSpec:
    """A question about many axes at once; ``file`` is where its matrix came from, ``search`` the entry in it.

    CELLS runs ``cells``, ``passes`` times each. MINIMISE goes from ``good`` to ``bad``. BISECT follows ``axis`` from
    ``good``. EXPLORE covers every combination of ``strength`` axes. ``signature`` names the failure that is sought;
    without one it is any of ``bad_kinds``, and without those the first failure that shows up. ``explain`` is how many
    other settings each cause is tried with in the end. ``fail_fast`` ends at the first surprise (CELLS) or at the
    first cause (EXPLORE); ``until_bad`` runs a cell no more once it failed. ``controls`` name trials run at the first
    failing value (BISECT) with one thing changed (``no-fault``, ``dense``). ``reuse`` counts trials of earlier runs
    whose code, configuration and machine are the same. ``lost`` are the parts of ``cells`` of which a merge of shards
    has no run.
    """

    question: str
    task: Task
    matrix: Matrix
    file: str = ""
    search: str = ""
    cells: tuple[Point, ...] = ()
    passes: int = 1
    good: Point | None = None
    bad: Point | None = None
    axis: str | None = None
    signature: str | None = None
    bad_kinds: tuple[Kind, ...] = ()
    strength: int = 2
    causes: int = 1
    explain: int = 0
    fail_fast: bool = False
    until_bad: bool = False
    controls: tuple[str, ...] = ()
    reuse: bool = False
    executor: str = "forkserver"
    seed: int = 0
    lost: tuple[LostShard, ...] = ()

    @property
    def line(self) -> Axis:
        """The axis that a threshold search follows; SpecError for any other question."""
        if self.task is not Task.BISECT or self.axis is None:
            raise SpecError(f"matrix {self.matrix.name!r} is asked for its {self.task}, not along one axis")
        return self.matrix.space.factor(self.axis).axis

    @property
    def corner(self) -> Point:
        """The cell that a search begins from."""
        return self.good or self.matrix.space.good

    @property
    def usual_control(self) -> str:
        """The one thing of our trainer that a control of this search can change; empty where there is none."""
        if self.matrix.target != "nsa":
            return ""
        if self.matrix.fault:
            return NO_FAULT
        bundle = self.matrix.bundle(self.corner)
        is_elsewhere = bundle.commit is not None or bundle.python is not None
        has_dense = self.line.path == ATTENTION or dict(bundle.config).get(ATTENTION) == DENSE
        return "" if is_elsewhere or has_dense else DENSE

    @property
    def runs_present_program(self) -> bool:
        """Whether what is run is a program of the user's as it is, not our trainer, nor one taken from a commit."""
        bundles = (self.matrix.base, *self.matrix.space.bundles)
        return bool(self.matrix.command) and not any(bundle.commit for bundle in bundles)

    def within(self, allowance: Allowance) -> CampaignSpec:
        """The same question, which may spend ``allowance``."""
        return replace(self, matrix=replace(self.matrix, effort=allowance.of(self.matrix.effort)))

    def at(self, value: Value) -> Point:
        """The cell of a threshold search at ``value``."""
        return self.corner.with_value(self.line.name, value)


def threshold_question(
    *,
    question: str,
    axis: Axis,
    target: str = "nsa",
    fixed: Point = NO_SETTINGS,
    fault: Fault | None = None,
    bad: tuple[Kind, ...] = (),
    limits: Limits = LEARNED,
    effort: Effort = DEFAULT_EFFORT,
    controls: tuple[str, ...] = (),
    executor: str = "forkserver",
    seed: int = 0,
    env: tuple[tuple[str, str], ...] = (),
    success: Success | None = None,
    reuse: bool = False,
) -> CampaignSpec:
    """From which value of ``axis`` on does ``target`` fail, its settings in ``fixed`` held: a matrix of one axis."""
    bundles = tuple(Bundle(config=((axis.path, value),)) for value in axis.values)
    factor = Factor(axis=axis, good=axis.values[0], bad=axis.values[-1], bundles=bundles)
    matrix = Matrix(
        name=axis.name,
        space=Space(factors=(factor,)),
        target=target,
        base=Bundle(config=fixed.settings, env=env),
        fault=fault,
        limits=limits,
        success=success or PASSES,
        effort=effort,
    )
    return CampaignSpec(
        question=question,
        task=Task.BISECT,
        matrix=matrix,
        good=matrix.space.good,
        axis=axis.name,
        bad_kinds=bad,
        controls=controls,
        executor=executor,
        seed=seed,
        reuse=reuse,
    )


class CellStatus(StrEnum):
    """Whether a cell ended as it was expected to."""

    EXPECTED = "as expected"
    UNEXPECTED = "not as expected"
    INCONCLUSIVE = "not told"
    SKIPPED = "skipped"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """One cell of a matrix: what it was expected to end in, and what it ended in.

    ``seen`` are the verdicts in words with their numbers, commonest first; trials that the machine spoiled are in it,
    but in no count. ``failure`` is the name of the failure it showed (a named signature, or kind and cause).
    ``keys`` are its trials; ``said`` is what was said of it without a trial, and by whom. ``ran`` is a fingerprint of
    the configuration and kernels that really ran, empty when not known. ``predicted_s`` is how long a healthy trial
    was expected to take before it was run.
    """

    cell: Point
    name: str
    count: CellCount
    seen: tuple[tuple[str, int], ...] = ()
    expected: str = "PASS"
    met: CellStatus = CellStatus.NOT_RUN
    because: str = ""
    issue: str = ""
    failure: str = ""
    keys: tuple[str, ...] = ()
    said: str = ""
    ran: str = ""
    seconds: float = 0.0
    gpu_seconds: float = 0.0
    predicted_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureTable:
    """One failure by name, and what the cells say about each axis for it; other failures are not counted with it."""

    failure: str
    cells: int
    trials: int
    axes: tuple[AxisVerdict, ...] = ()
    interactions: tuple[Interaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisFit:
    """How a quantity grows along an ordered axis, everything else at ``fixed``."""

    axis: str
    fixed: Point
    fit: ScalingFit


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """An answer for a cell in place of a trial's: a user's word, or a trial that was not worth starting."""

    cell: Point
    answer: Answer
    by: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A command line that differs from another by ``change`` (``without --overlap``), and how its trials ended."""

    change: str
    count: CellCount


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCommand:
    """A failing command line of somebody's program, each word quoted for a shell, variables in front.

    ``count`` are all trials of it, ``tried_again`` those of them that were run after the search, only to see it once
    more before it is printed. ``next_to`` are the passing command lines that it was held against.
    """

    line: tuple[str, ...]
    verdict: str
    count: CellCount
    tried_again: int = 0
    failed_again: int = 0
    next_to: tuple[Variant, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignJob:
    """A job that somebody else started, as whoever must act on it needs it: what runs, where, and what ends it.

    ``command`` is the command line of its first rank without secrets, ``age_s`` how long that ran when the watch began,
    ``end_it`` the command that ends the job. Empty or None is what is not known. ``is_over`` says that the job has
    ended since its last look. ``others`` are the programs without ranks that the same process has started beside it.
    """

    command: str = ""
    directory: str = ""
    host: str = ""
    age_s: float | None = None
    end_it: str = ""
    is_over: bool = False
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignAnswer:
    """Everything a campaign showed. Of the three searches at most one has an answer; cells and tables are always there.

    ``gpu_seconds`` counts each second of a trial once for every GPU that it occupied. ``commands`` are the failing
    command lines of a program that is not ours. ``job`` is what was only watched.
    """

    cells: tuple[CellResult, ...] = ()
    failures: tuple[FailureTable, ...] = ()
    fits: tuple[AxisFit, ...] = ()
    boundary: Boundary | None = None
    minimised: Minimised | None = None
    explored: Explored | None = None
    gpu_seconds: float = 0.0
    because: str = ""
    notes: tuple[str, ...] = ()
    commands: tuple[OwnCommand, ...] = ()
    job: ForeignJob | None = None

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes that a search named, those first that are reproduced, then those that are certified."""
        search = self.minimised or self.explored
        causes = search.causes if search else ()
        return tuple(sorted(causes, key=lambda cause: (cause.claim is Claim.OBSERVED, not cause.certified)))

    @property
    def surprises(self) -> tuple[CellResult, ...]:
        """The cells that did not end as expected."""
        return tuple(result for result in self.cells if result.met is CellStatus.UNEXPECTED)
