"""Evidence of several ranks and of GPUs in a report: who was silent first, where each was, what was not finished."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from harness.core.devices import Collective, CollectiveState, GpuProcess, GpuSample, RasReport
from harness.core.evidence import Frame, Heartbeat, LogTail, RankFacts, WorkerResult
from harness.core.verdict import Kind
from harness.report import one
from harness.report.figures.trial import draw_stacks, draw_timeline
from harness.report.findings import steps_of
from harness.report.seen import devices, raised, ranks
from harness.report.summary import place_in
from harness.report.write import build


def mark(rank, t_s, phase, edge="begin"):
    return Heartbeat(seq=int(t_s * 10), t_s=t_s, rank=rank, pid=4100 + rank, phase=phase, edge=edge, step=1)


def two_ranks(parts):
    """Rank 1 stands in its loader since 2 s; rank 0 waits for it in backward since 3 s."""
    record, evidence = parts["hung"](5)
    one = dataclasses.replace(evidence.stacks[-1], rank=0, pid=4100, id="stack-0", t_s=6.0)
    loader = Frame(function="next_batch", file="/x/nsa/train/data.py", line=7)
    thread = dataclasses.replace(one.threads[0], tid=4101, frames=(loader, *one.threads[0].frames[-1:]))
    other = dataclasses.replace(one, rank=1, pid=4101, id="stack-1", threads=(thread,))
    facts = tuple(
        RankFacts(id=f"rank-{r}", rank=r, pid=4100 + r, steps_done=1, heartbeats=marks, silence_s=7.4 - marks[-1].t_s)
        for r, marks in enumerate(((mark(0, 1.0, "forward"), mark(0, 3.0, "backward")), (mark(1, 2.0, "data"),)))
    )
    return record, dataclasses.replace(evidence, ranks=facts, stacks=(one, other), processes=())


def test_ranks_are_told_apart_the_longest_silence_first(parts):
    record, evidence = two_ranks(parts)
    told = ranks(evidence, record.outcome)
    assert told.startswith("**Ranks,** the odd one out first:")
    assert "rank 1 is in next_batch (data.py:7)" in told
    rows = [line for line in told.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert [row.split(" | ")[0] for row in rows] == ["| 1", "| 0"]
    assert "data begin, step 1 at 2.0 s | 5.4 s" in rows[0]


def on_screen(make_run, record, evidence):
    run = dataclasses.replace(make_run("threshold")[0], records=(record,))
    return one.text(run, {record.trial.key: evidence}, where=Path("runs"), steps=())


def test_the_line_and_the_last_word_are_those_of_the_rank_that_the_verdict_names(make_run, parts):
    """Rank 0 raised too, but only that it lost rank 1; for a rank that was killed and said nothing no other speaks."""
    record, evidence = two_ranks(parts)

    def said(rank, function, exception):
        text = f'Traceback:\n  File "/x/nsa/train/{function}.py", line {40 + rank}, in {function}\n{exception}: no'
        word = WorkerResult(id=f"result-{rank}", status="raised", steps_done=1, exception=exception, traceback=text)
        return dataclasses.replace(evidence.ranks[rank], result=word)

    lost, guilty = said(0, "wait", "RuntimeError"), said(1, "check", "ValueError")
    verdict = dataclasses.replace(record.verdict, kind=Kind.CRASH, rank=1)
    record = dataclasses.replace(record, verdict=verdict)
    both = dataclasses.replace(evidence, ranks=(lost, guilty), result=lost.result)
    assert place_in(record, both).brief == "check (check.py:41)"
    assert "ValueError" in raised(both, 1)
    shown = on_screen(make_run, record, both)
    assert ", rank 1: check (check.py:41)" in shown
    assert "check.py" in shown.partition("raised:")[2]
    assert "wait.py" not in shown

    killed = dataclasses.replace(both, ranks=(lost, evidence.ranks[1]))
    assert "wait.py" not in place_in(record, killed).text
    assert raised(killed, 1) == ""
    everybody = dataclasses.replace(record, verdict=dataclasses.replace(verdict, rank=None))
    assert place_in(everybody, both).brief == "wait (wait.py:40)"


def test_the_line_is_that_of_the_worker_cited_first_not_of_the_rank_that_waits_for_it(parts):
    record, evidence = two_ranks(parts)
    worker = dataclasses.replace(evidence.stacks[1], rank=0, pid=4200, id="stack-9", native=False)
    rank = dataclasses.replace(evidence.stacks[0], native=True, t_s=worker.t_s + 1.0)
    both = dataclasses.replace(evidence, stacks=(worker, rank), ranks=evidence.ranks[:1])
    verdict = dataclasses.replace(record.verdict, kind=Kind.HANG, rank=0, cites=("stack-9", rank.id))
    assert place_in(dataclasses.replace(record, verdict=verdict), both).brief == "next_batch (data.py:7)"


def test_a_stack_from_before_it_ended_by_itself_is_no_line_to_look_at(parts):
    """It was looked at while it loaded, trained for a while, and left with a status of its own."""
    record, evidence = two_ranks(parts)
    verdict = dataclasses.replace(record.verdict, kind=Kind.CRASH, rank=None, cites=("exit",), phase="output")
    crashed = dataclasses.replace(record, verdict=dataclasses.replace(verdict, signature="CRASH exit-3"))
    place = place_in(crashed, evidence)
    assert (place.is_line, place.text) == (False, "it ended without a traceback; it was in output")

    printed = LogTail(id="log-1", stream="stderr", text=CHILD, size_bytes=len(CHILD))
    evidence = dataclasses.replace(evidence, logs=(printed,), ranks=())
    of_child = dataclasses.replace(verdict, cites=("exit", "log-1"), signature="CRASH exit-1: load.load")
    assert place_in(dataclasses.replace(record, verdict=of_child), evidence).brief == "load (load.py:7)"

    went_on = dataclasses.replace(printed, text=f"{CHILD.rstrip()}\nstep 4\nthe loss diverged\n")
    place = place_in(dataclasses.replace(record, verdict=of_child), dataclasses.replace(evidence, logs=(went_on,)))
    assert (place.is_line, place.text.partition(";")[0]) == (
        False,
        "more was printed below its last traceback, of load (/home/me/load.py:7)",
    )


CHILD = """Traceback (most recent call last):
  File "/home/me/load.py", line 7, in load
    raise Missing(path)
load.Missing: a.bin
"""


def test_of_a_program_without_ranks_the_process_is_placed_whose_stack_decides_and_no_bystander(make_run, parts):
    record, evidence = parts["hung"](5)
    main = evidence.stacks[-1]
    frame = Frame(function="ticker", file="/x/train.py", line=7)
    beside = dataclasses.replace(main.threads[0], tid=9, frames=(frame,))
    looking_on = dataclasses.replace(main, id="stack-9", pid=9, threads=(beside,))
    evidence = dataclasses.replace(evidence, stacks=(*evidence.stacks, looking_on))
    shown = on_screen(make_run, record, evidence)
    assert f"process {main.pid} " in shown
    assert "ticker" not in shown


def test_a_single_process_has_no_table_of_ranks(parts):
    record, evidence = parts["hung"](5)
    assert ranks(evidence, record.outcome) == ""
    assert devices(evidence) == ""


def test_the_timeline_puts_the_rank_that_fell_silent_first_on_top(parts):
    record, evidence = two_ranks(parts)
    drawn = draw_timeline(record, evidence, hide=str)
    assert drawn.alt.index("rank 1 last heard of at 2.0 s") < drawn.alt.index("rank 0 last heard of at 3.0 s")
    assert drawn.svg.index("rank 1") < drawn.svg.index("rank 0", drawn.svg.index("</desc>"))


def test_the_icicles_have_a_column_for_every_rank(parts):
    record, evidence = two_ranks(parts)
    drawn = draw_stacks(evidence, record.verdict, hide=str)
    assert drawn.title == "Where the ranks were"
    assert "1 rank in next_batch (nsa/train/data.py:7)" in drawn.alt
    assert "They share the outermost 1 call." in drawn.alt


def test_gpus_name_processes_that_are_not_ours_and_collectives_what_was_not_finished(parts, make_run):
    record, evidence = two_ranks(parts)
    gpu = GpuSample(
        id="gpu-1", t_s=5.0, index=0, name="H200", utilisation=100, memory_used_bytes=73 * 2**30, power_w=118.4,
        processes=(GpuProcess(pid=7, ours=True), GpuProcess(pid=9, ours=False)), xids=(31,),
    )  # fmt: skip
    done = Collective(group="0", seq=3, op="all_reduce", sizes=((4,),), done=True)
    begun = Collective(group="0", seq=4, op="all_gather", sizes=((2, 2),), where="train.py:9")
    state = CollectiveState(id="fr-0", t_s=5.0, rank=0, source="nccl", backend="nccl", collectives=(done, begun))
    ras = RasReport(id="ras-1", t_s=5.0, text="rank 1 missing", missing=(1,))
    evidence = dataclasses.replace(evidence, gpus=(gpu,), collectives=(state,), ras=(ras,))
    run, run_dir = make_run(parts["Canned"](parts["spec"](), [(record, evidence)], None, "interrupted"))
    text = dict(build(run, run_dir).blocks)["failures"].markdown
    assert "| 0 | H200 | 100 % | - | 73 GiB | 118 W | 7, 9 (not ours) | 31 |" in text
    assert "| 0 | nccl | `all_reduce [4] (number 3)` | `all_gather [2x2] (number 4)` | `train.py:9` |" in text
    assert "missing ranks 1" in text


def test_a_record_that_holds_the_steps_of_every_rank_counts_each_step_once(parts):
    record, _ = parts["passed"](1)
    twice = dataclasses.replace(record.measurement, step_s=record.measurement.step_s * 2)
    assert steps_of(record) == steps_of(dataclasses.replace(record, measurement=twice)) == 8
