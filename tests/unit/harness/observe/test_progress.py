"""Progress of a program without marks: lines that match, a file that grows, any output until marks begin."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from fake_clock import FakeClock
from harness.launch.supervisor import BoundedFile
from harness.observe.census import Census
from harness.observe.heartbeat import Heartbeats
from harness.observe.progress import RankSearch, Taps
from harness.store import layout
from scripted_trial import ScriptedHandle


class Program:
    """A trial's folder with an output stream that the supervisor would keep."""

    def __init__(self, folder, *, bound=1000, rank=None, **progress):
        self.folder, self.clock = folder, FakeClock(0.0)
        self.out = BoundedFile(
            head=str(layout.output(folder, "stdout")), tail=str(layout.output_tail(folder, "stdout")), bound=bound
        )
        trial = SimpleNamespace(config={"command": "x", "progress": progress})
        census = Census(
            handle=ScriptedHandle(clock=self.clock, trial_dir=folder), clock=self.clock, read=lambda _: None
        )
        self.taps = Taps(trial, trial_dir=folder, clock=self.clock, pid=7, census=census, rank=rank)
        self.beats = Heartbeats(folder, started_s=0.0)

    def prints(self, text, *, at=0.0):
        self.clock.advance(at - self.clock.now())
        self.out.feed(text.encode())
        self.out.flush()

    def progresses(self):
        self.taps.poll()
        return self.beats.read()


@pytest.fixture
def program(tmp_path):
    made = []

    def make(**settings):
        made.append(Program(tmp_path, **settings))
        return made[-1]

    yield make
    for one in made:
        one.taps.close()
        one.beats.close()
        one.out.close()


def test_a_line_that_matches_counts_steps_and_others_are_no_progress(program):
    it = program(pattern=r"step (\d+)")

    it.prints("hello\nstep 3 loss 0.5\n", at=5.0)
    assert it.progresses()
    assert (it.beats.steps_done, it.beats.last.step, it.beats.last.t_s) == (3, 3, 5.0)
    assert it.beats.last.detail == "step 3 loss 0.5"
    it.prints("warning: slow\nstep", at=6.0)
    assert not it.progresses()
    it.prints(" 4\n", at=7.0)
    assert it.progresses()
    assert it.beats.steps_done == 4


def test_a_progress_bar_that_only_returns_the_carriage_is_read(program):
    it = program(pattern=r"(\d+)/100")

    it.prints("  1/100\r  2/100\r")
    assert it.progresses()
    assert it.beats.steps_done == 2


def test_output_beyond_the_bound_is_seen_once_each(program):
    it = program(pattern=r"step (\d+)", bound=400)
    seen = []
    for step in range(1, 200):
        it.prints(f"step {step}\n")
        assert it.progresses()
        assert not it.progresses()
        seen.append(it.beats.steps_done)

    assert seen == list(range(1, 200))
    it.prints("nothing new\n")
    assert not it.progresses()


def test_a_burst_that_outgrows_what_is_kept_is_read_from_what_is_left(program):
    it = program(pattern=r"step (\d+)", bound=400)
    it.prints("".join(f"step {step}\n" for step in range(1000)))

    assert it.progresses()
    assert it.beats.steps_done == 999


def test_a_file_that_grows_is_progress_and_what_was_in_it_is_not(program, tmp_path):
    log = tmp_path / "their.log"
    log.write_text("from an earlier run\n")
    it = program(file=str(log))

    assert not it.progresses()
    with log.open("a") as file:
        file.write("more\n")
    assert it.progresses()
    assert it.beats.last.phase == "file"
    assert not it.progresses()
    (tmp_path / "their.log").write_text("anew\n")
    assert it.progresses()


def test_files_by_a_pattern_may_appear_later(program, tmp_path):
    it = program(file=str(tmp_path / "ckpt" / "*.pt"))

    assert not it.progresses()
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "1.pt").write_text("x")
    assert it.progresses()


def test_a_pattern_looks_into_the_file_too(program, tmp_path):
    log = tmp_path / "their.log"
    it = program(file=str(log), pattern=r"iter (\d+)")
    log.write_text("starting\n")

    assert not it.progresses()
    log.write_text("starting\niter 12\n")
    assert it.progresses()
    assert it.beats.steps_done == 12


def test_what_a_second_node_prints_is_its_own_ranks_progress_and_not_rank_0s(program):
    it = program(rank=1)

    it.prints("step 1\n")
    assert it.progresses()
    assert (it.beats.last.rank, list(it.beats.ranks)) == (1, [1])


def test_any_output_counts_until_the_programs_own_marks_begin(program, tmp_path):
    it = program()

    it.prints("loading\n")
    assert it.progresses()
    assert (it.beats.last.phase, it.beats.last.step) == ("output", None)
    mark = {"seq": 1, "t": 1.0, "rank": 0, "pid": 7, "phase": "data", "edge": "begin", "step": 0, "detail": None}
    (tmp_path / "heartbeat_rank0.jsonl").write_text(json.dumps(mark) + "\n")
    assert it.progresses()
    it.prints("still waiting\n")
    assert not it.progresses()


class Processes:
    """Who is there, and which rank each has by what its launcher told it."""

    def __init__(self, **ranks):
        self.by_name = ranks

    def members(self):
        return {pid: SimpleNamespace(inner=pid, started=pid) for pid in self.by_name.values()}

    def ranks(self):
        return {int(name[1:]): pid for name, pid in self.by_name.items()}

    def first_python(self):
        return None


@pytest.mark.parametrize("speaks", [False, True])
def test_who_has_which_rank_is_looked_for_anew_only_where_ranks_do_not_say_so_themselves(tmp_path, speaks):
    """A helper of the first life has the rank of its parent by the environment, and outlives it."""
    clock, census = FakeClock(0.0), Processes(r0=10, r1=11)
    layout.ranks(tmp_path).parent.mkdir(parents=True, exist_ok=True)
    search = RankSearch(tmp_path, pid=7, clock=clock, census=census)

    def rows():
        clock.advance(100.0)
        search.poll()
        return [json.loads(line) for line in layout.ranks(tmp_path).read_text().splitlines()]

    assert [row["pid"] for row in rows()] == [10, 11]
    if speaks:
        with layout.ranks(tmp_path).open("a") as file:
            file.write('{"event":"started","rank":1,"pid":21,"t":1.0}\n')
    census.by_name = {"r0": 20, "r1": 12}
    assert [row["pid"] for row in rows()] == [10, 11, *([21] if speaks else [20, 12])]


def test_what_a_program_printed_before_it_raised_is_progress_though_it_had_no_mark_of_its_own(program, tmp_path):
    it = program()
    it.prints("step 1\nstep 2\n")
    (tmp_path / "heartbeat_rank0.jsonl").touch()  # opened to say how it ended
    assert it.progresses()
    (tmp_path / "heartbeat_rank0.jsonl").write_text("{}\n")
    it.prints("step 3\n")
    assert not it.progresses()
