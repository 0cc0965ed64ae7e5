"""Progress marks are read while they are written: torn, corrupt, late and very many."""

import json
import os

import pytest

from harness.observe.heartbeat import FIRST_MARKS, LAST_MARKS, MOST_AT_ONCE_BYTES, PLACE, Heartbeats, LineReader
from harness.store import layout


def mark(seq, t, *, step=0, phase="forward", rank=0):
    record = {"seq": seq, "t": t, "rank": rank, "pid": 7, "phase": phase, "edge": "begin", "step": step, "detail": None}
    return json.dumps(record) + "\n"


def step_done(seq, t, *, step, rank=0, **facts):
    return (
        json.dumps({"seq": seq, "t": t, "rank": rank, "pid": 7, "event": "step", "step": step, "facts": facts}) + "\n"
    )


@pytest.fixture
def beats(tmp_path):
    beats = Heartbeats(tmp_path, started_s=1000.0)
    yield beats
    beats.close()


@pytest.fixture
def write(tmp_path):
    def write(text, *, rank=0):
        with layout.heartbeat(tmp_path, rank).open("a") as file:
            file.write(text)

    return write


def test_no_file_is_no_progress(beats):
    assert not beats.read()
    assert beats.last is None


def test_times_count_from_the_start_of_the_trial(beats, write):
    write(mark(1, 1001.5, step=None, phase="build"))
    assert beats.read()
    assert (beats.last.t_s, beats.last.phase, beats.last.step) == (1.5, "build", None)
    assert beats.first_step_t_s is None
    assert not beats.read()


def test_torn_last_line_waits_for_its_end(beats, write):
    line = mark(2, 1002.0)
    write(mark(1, 1001.0) + line[:25])
    assert beats.read()
    assert beats.last.seq == 1
    write(line[25:-1])
    assert not beats.read()
    write("\n")
    assert beats.read()
    assert (beats.last.seq, beats.unreadable) == (2, 0)


@pytest.mark.parametrize(
    "line", ["{nonsense\n", "[1, 2]\n", "{}\n", '{"t": "x"}\n', "\0\0\0\n", '{"t": 1001}\n', "7\n"]
)
def test_corrupt_line_is_counted_and_skipped(beats, write, line):
    write(mark(1, 1001.0) + line + mark(2, 1002.0))
    assert beats.read()
    assert beats.marks.total == 2
    assert beats.unreadable == 1
    assert beats.last_t_s == 2.0


def test_endless_line_is_dropped_and_what_follows_is_read(beats, write):
    write(mark(1, 1001.0) + "x" * 1_200_000)
    beats.read()
    assert beats.unreadable >= 1
    write("\n" + mark(2, 1002.0))
    beats.read()
    assert beats.last.seq == 2


def test_steps_have_durations_and_the_first_counts_from_its_first_mark(beats, write):
    write(mark(1, 1001.0, step=None, phase="build") + mark(2, 1010.0, step=0) + step_done(3, 1012.0, step=0, loss=2.0))
    write(mark(4, 1012.1, step=1) + step_done(5, 1015.0, step=1, loss=1.5))
    beats.read()
    assert beats.steps_done == 2
    assert beats.step_s.items() == pytest.approx((2.0, 3.0))
    assert beats.first_step_t_s == 10.0
    assert beats.facts == {"first_loss": 2.0, "loss": 1.5}
    assert beats.marks.total == 3


def test_longest_silence_leaves_out_the_startup_and_counts_steps_as_progress(beats, write):
    write(mark(0, 1001.0, step=None, phase="build") + mark(1, 1031.0, step=None, phase="build"))
    write(mark(2, 1060.0, step=0) + step_done(3, 1064.0, step=0))
    write(mark(4, 1065.0, step=1) + mark(5, 1067.0, step=1))
    beats.read()
    assert beats.longest_silence_s == 4.0
    assert beats.last_t_s == 67.0


def test_the_pace_leaves_out_the_first_step_but_for_its_data(beats, write):
    write(mark(1, 1001.0, step=None, phase="build"))
    write(mark(2, 1030.0, phase="data") + mark(3, 1035.0) + mark(4, 1055.0, phase="optim"))
    write(step_done(5, 1055.5, step=0) + mark(6, 1056.0, step=1, phase="data") + mark(7, 1056.5, step=1))
    write(mark(8, 1057.5, step=1, phase="optim") + step_done(9, 1058.0, step=1))
    beats.read()
    pace = beats.pace()
    # The forward pass of the first step took 20 s; what came before the first step counts for nothing.
    assert pace.gaps == (("data", "begin", 5.0), ("forward", "begin", 1.0), ("optim", "begin", 1.0))
    assert (pace.steps, pace.longest_s) == (2, 5.0)


def test_a_place_is_known_once_its_step_is_done_and_its_gap_counts_at_once(beats, write):
    for step in range(3):
        write(mark(3 * step + 1, 1001.0 + step, step=step) + step_done(3 * step + 2, 1001.5 + step, step=step))
    write(mark(10, 1004.0, step=3, phase="save") + mark(11, 1011.0, step=3, phase="save"))
    beats.read()
    assert [phase for phase, _, _ in beats.pace().gaps] == ["forward"]
    assert beats.pace().longest_s == 7.0
    write(step_done(12, 1012.0, step=3))
    beats.read()
    assert [phase for phase, _, _ in beats.pace().gaps] == ["forward", "save"]


def test_gaps_lie_between_the_marks_of_one_rank(beats, write):
    for rank in (0, 1):
        for step in range(3):
            begin_s = 1001.0 + 10.0 * step + 5.0 * rank
            write(mark(2 * step + 1, begin_s, step=step, rank=rank), rank=rank)
            write(step_done(2 * step + 2, begin_s + 1.0, step=step, rank=rank), rank=rank)
    beats.read()
    assert beats.pace().gaps == (("forward", "begin", 10.0),)


def test_first_step_with_a_fact_that_is_no_number_is_remembered(beats, write):
    write(mark(1, 1001.0) + step_done(2, 1002.0, step=0, loss=1.0) + step_done(3, 1003.0, step=1, loss=float("nan")))
    write(step_done(4, 1004.0, step=2, loss=float("nan")))
    beats.read()
    assert beats.facts["first_nonfinite_loss_step"] == 1.0
    assert beats.unreadable == 0


def test_memory_is_bounded_and_both_ends_are_kept(beats, write):
    write("".join(mark(i, 1000.0 + i, step=i) + step_done(i, 1000.5 + i, step=i) for i in range(1000)))
    beats.read()
    kept = [beat.seq for beat in beats.marks.items()]
    assert len(kept) == FIRST_MARKS + LAST_MARKS
    assert (kept[0], kept[FIRST_MARKS - 1], kept[FIRST_MARKS], kept[-1]) == (0, 49, 800, 999)
    assert (beats.marks.total, beats.steps_done) == (1000, 1000)
    assert len(beats.step_s.items()) == FIRST_MARKS + LAST_MARKS


def test_steps_of_several_ranks_add_up_to_the_time_from_the_first_mark_to_the_last_end(beats, write):
    write(mark(1, 1001.0) + step_done(2, 1004.0, step=0))
    write(mark(1, 1003.0, rank=1) + step_done(2, 1006.0, step=0, rank=1), rank=1)
    beats.read()
    assert sum(beats.step_s.items()) == pytest.approx(5.0)


def test_a_step_is_done_when_every_rank_has_done_it(beats, write):
    write(mark(1, 1001.0) + step_done(2, 1002.0, step=0))
    write(mark(1, 1001.0, rank=1), rank=1)
    beats.read()
    assert beats.steps_done == 0
    write(step_done(2, 1003.0, step=0, rank=1), rank=1)
    assert beats.read()
    assert beats.steps_done == 1


@pytest.mark.parametrize("first", [0, 1])
def test_a_step_of_several_ranks_lasts_until_the_last_of_them_has_it(beats, write, first):
    """In whichever order they are heard of."""
    for rank in range(2):
        write(mark(1, 1010.0, step=0, rank=rank), rank=rank)
    beats.read()
    for rank in (first, 1 - first):
        late_s = 0.5 * rank
        write(step_done(2, 1012.0 + late_s, step=0, rank=rank) + step_done(3, 1014.0, step=1, rank=rank), rank=rank)
        beats.read()
    assert beats.step_s.items() == pytest.approx((2.5, 1.5))
    assert beats.steps_done == 2


def test_a_rank_that_is_heard_of_late_catches_up(beats, write):
    write(mark(1, 1010.0) + step_done(2, 1011.0, step=0) + step_done(3, 1012.0, step=1))
    beats.read()
    write(mark(1, 1010.0, rank=1) + step_done(2, 1012.5, step=0, rank=1), rank=1)
    beats.read()
    assert beats.steps_done == 1


@pytest.fixture
def put(tmp_path):
    """What the shim puts into shared memory: the number of the mark, its time, steps done, the end of the last."""

    def put(seq, t, *, done, ended, place=3, pid=7, again=None):
        data = PLACE.pack(seq, t, done, ended, pid, place, seq if again is None else again)
        (tmp_path / "place_rank0").write_bytes(data)

    return put


def test_a_place_in_shared_memory_is_a_mark_and_counts_the_steps_before_it(beats, write, put):
    write(mark(1, 1001.0, phase="data") + step_done(2, 1001.5, step=0))
    put(30, 1002.1, done=7, ended=1002.0)

    assert beats.read()
    assert (beats.last.phase, beats.last.edge, beats.last.step) == ("backward", "begin", 7)
    assert (beats.steps_done, beats.last_t_s) == (7, pytest.approx(2.1))
    assert beats.step_s.items() == (0.5, pytest.approx(0.5 / 6))
    assert not beats.read()


@pytest.mark.parametrize(
    "what",
    [
        {"seq": 30, "again": 29},  # half-written
        {"seq": 0},  # nothing was put there yet
        {"seq": 2},  # a line has said more since
        {"seq": 30, "place": 99},  # of a later version
    ],
)
def test_what_is_no_new_place_is_left_alone(beats, write, put, what):
    write(mark(3, 1001.0, phase="data"))
    put(**{"t": 1002.0, "done": 7, "ended": 1001.9, **what})

    assert beats.read()
    assert (beats.last.phase, beats.last.step, beats.steps_done) == ("data", 0, 0)


def test_a_new_process_of_a_rank_counts_its_marks_anew(beats, write, put):
    write(mark(500, 1001.0, phase="data"))
    put(20, 1002.0, done=3, ended=1001.9, pid=8)

    assert beats.read()
    assert (beats.last.phase, beats.last.pid, beats.last.step) == ("backward", 8, 3)


def test_a_file_without_end_is_not_read_to_its_end_in_one_look(tmp_path):
    path = tmp_path / "heartbeat_rank0.jsonl"
    path.write_bytes(b'{"a": 1}\n')
    with path.open("r+b") as file:
        file.truncate(3 * MOST_AT_ONCE_BYTES)
    reader = LineReader(path)
    assert reader.lines() == [b'{"a": 1}']
    assert os.lseek(reader._fd, 0, os.SEEK_CUR) == MOST_AT_ONCE_BYTES
    reader.lines()
    assert os.lseek(reader._fd, 0, os.SEEK_CUR) == 2 * MOST_AT_ONCE_BYTES
    reader.close()
