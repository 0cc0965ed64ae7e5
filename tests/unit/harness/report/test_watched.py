"""A job that was only watched: how often and how long a look stopped its processes, and nothing of limits or ends."""

from __future__ import annotations

import dataclasses
import json
from itertools import chain
from pathlib import Path

import pytest

from harness.cli.journal_text import status_lines
from harness.core.campaign import CampaignAnswer, ForeignJob
from harness.core.codec import from_json
from harness.core.evidence import Evidence, Frame, Measurement, RankFacts, SourceFailure, StackSample, ThreadStack
from harness.core.outcome import Ending, Exit
from harness.core.verdict import Answer, Confidence, Kind, Verdict
from harness.report import one
from harness.report.findings import Findings
from harness.report.render import html, markdown
from harness.report.render import json as json_form
from harness.report.sections.evidence import ended
from harness.report.sections.reasons import tree_section
from harness.report.seen import processes
from harness.report.text import wrap
from harness.report.viewer.data import of_run
from harness.report.watched import stops_in_words, stops_of, watched_step
from harness.report.write import build, form
from harness.solo import foreign_question, foreign_trial

JOB = ForeignJob(
    command="python train.py --token '<hidden>'",
    directory="/data/run-7",
    host="node-17",
    age_s=7380.0,
    end_it="kill 4100",
)


def looked(stacks, **facts):
    return Evidence(steps_wanted=0, steps_done=0, stacks=stacks, **facts)


def samples(pid, *stopped_s, native=True):
    return tuple(
        StackSample(id="s", source="pystack", native=native, t_s=1.0, rank=0, pid=pid, threads=(), stopped_s=one)
        for one in stopped_s
    )


@pytest.mark.parametrize(
    ("stacks", "wanted"),
    [
        ((), "no process was stopped to look at it"),
        (samples(7, 0.0, 0.0, native=False), "no process was stopped to look at it"),
        (
            samples(7, 0.0),
            "to see native frames process 7 was stopped once (how long was not measured); it was let go on",
        ),
        (samples(7, 0.42), "to see native frames process 7 was stopped once, for 420 ms; it was let go on"),
        (
            samples(4906, 0.3, 0.42, 0.2, 0.3, 0.245),
            "to see native frames process 4906 was stopped 5 times, 1,465 ms in all, 420 ms at the longest; "
            "it was let go on each time",
        ),
        (  # a dump that failed stopped it too, and what came in its place shows no native frames
            samples(7, 0.0, 10.2, native=False),
            "to see native frames process 7 was stopped once, for 10,200 ms; it was let go on",
        ),
        (
            (*samples(7, 0.1), *samples(8, 0.2, 0.1)),
            "to see native frames process 8 was stopped 2 times, 300 ms in all, 200 ms at the longest; "
            "process 7 was stopped once, for 100 ms; all were let go on each time",
        ),
    ],
)
def test_each_process_that_was_stopped_is_named_with_its_milliseconds(stacks, wanted):
    assert stops_in_words(stops_of([looked(stacks)])) == wanted


def test_the_looks_of_one_watch_are_added_up_and_ranks_are_named():
    rank = RankFacts(id="rank-1", rank=1, pid=8, steps_done=0, heartbeats=(), silence_s=9.0)
    look = looked(samples(8, 0.2), ranks=(rank,))
    assert "rank 1 (process 8) was stopped 2 times, 400 ms in all, 200 ms at the longest" in stops_in_words(
        stops_of([look, look])
    )


def test_a_terminal_names_those_that_were_stopped_longest_and_counts_the_others():
    stops = stops_of([looked(tuple(chain.from_iterable(samples(pid, pid / 10) for pid in range(1, 8))))])
    text = stops_in_words(stops, most=2)
    assert text.startswith("to see native frames process 7 was stopped once, for 700 ms; process 6 ")
    assert "5 more processes at most 1 time and 500 ms each, as the report says" in text
    assert "process 5" not in text
    assert "process 1 " in stops_in_words(stops)


@pytest.fixture
def look(parts, make_run):
    """A run of ``watch`` whose looks are of these kinds, and its evidence."""

    def make(*kinds, job=None, **facts):
        canned = parts["threshold"]()
        record, evidence = parts["hung"](5)
        evidence = dataclasses.replace(evidence, **facts)
        canned.spec, canned.boundary, canned.trials = foreign_question(name="watch", question="What?"), None, []
        canned.answer = CampaignAnswer(job=job)
        for repeat, (kind, cause) in enumerate(kinds):
            trial = foreign_trial("python", code="1", machine="x", why="not ours", repeat=repeat)
            outcome = dataclasses.replace(record.outcome, ending=Ending.STILL_RUNNING, exit=None)
            verdict = dataclasses.replace(record.verdict, kind=kind, cause=cause)
            seen = dataclasses.replace(record, trial=trial, outcome=outcome, verdict=verdict, answer=Answer.UNRESOLVED)
            canned.trials.append((seen, evidence))
        return (*make_run(canned), evidence)

    return make


STOPPED = "process 4100 was stopped 6 times, 600 ms in all, 150 ms at the longest; it was let go on each time"


def test_of_a_watched_job_it_is_said_on_the_terminal_and_on_every_page(look):
    run, run_dir, evidence = look((Kind.UNRESOLVED, "moving"), (Kind.HANG, "deadlock"))
    report = build(run, run_dir)
    page = f"Nothing was signalled or ended; to see native frames {STOPPED}."
    assert page in markdown.render(report)
    assert page in html.render(report, hide=str)
    assert page in json.loads(json_form.render(report))["sections"][0]["markdown"]
    by_key = {record.trial.key: evidence for record in run.records}
    shown = one.watched(run.records[-1], by_key, job=ForeignJob(), where=Path("x"), argv=())
    assert "\n".join(wrap(f"to see native frames {STOPPED}", width=80, indent="  ")) in shown


def test_of_a_run_it_stands_in_the_evidence_and_not_on_the_first_screen(make_run):
    report = build(*make_run("threshold"))
    first, rest = markdown.render(report).split("\n## ", 1)
    assert "stopped" not in first
    assert "| stopped to look | to see native frames process 4100 was stopped 3 times, 300 ms in all" in rest


@pytest.mark.parametrize(
    ("kind", "answer"),
    [(Kind.UNRESOLVED, "not known: of a job that it did not start, a watch sees no marks"), (Kind.HANG, "no")],
)
def test_that_a_watch_sees_no_marks_is_no_lack_of_progress(look, kind, answer):
    """Of a job that printed 20 lines a second it said that there was none."""
    run, run_dir, _ = look((kind, "x"), heartbeats=(), heartbeats_total=0)
    tree = tree_section(Findings(run=run, run_dir=run_dir)).markdown
    assert f"Did it make progress while it was watched?\n   ├─ {answer}   (progress: watched for 7.4 s" in tree


def test_a_watched_job_that_progresses_has_no_limit_no_steps_and_no_end(look):
    run, run_dir, evidence = look((Kind.SLOW, None))
    report = build(run, run_dir)
    page = markdown.render(report)
    assert report.summary.verdict == "No hang was seen, it progresses"
    for claim in ("ran out of time", "out of time", "Give the slow cells time", "steps done", "we ended it", "720 h"):
        assert claim not in page
    record = run.records[-1]
    shown = one.watched(record, {record.trial.key: evidence}, job=JOB, where=Path("x"), argv=())
    assert shown.startswith("no hang was seen, it progresses  (watched for 7.4 s)")
    assert "kill" not in shown


def test_every_process_whose_stack_the_verdict_cites_is_shown_where_it_is(look, parts):
    run, _, evidence = look((Kind.UNRESOLVED, "moving"))
    waits = evidence.stacks[0]
    work = Frame(function="evaluate", file="/src/eval.py", line=13)
    works = dataclasses.replace(waits, id="stack-8", pid=8, threads=(ThreadStack(tid=8, name="", frames=(work,)),))
    empty = dataclasses.replace(works, id="stack-9", t_s=9.0, threads=(ThreadStack(tid=8, name="", frames=()),))
    seen = dataclasses.replace(evidence, stacks=(waits, works, empty), heartbeats=(), main=4100)
    verdict = dataclasses.replace(run.records[0].verdict, cites=("stack-8", "stack-9", waits.id))
    record = dataclasses.replace(run.records[0], verdict=verdict)
    shown = one.watched(record, {record.trial.key: seen}, job=ForeignJob(), where=Path("x"), argv=())
    assert "process 8 is in evaluate (eval.py:13)" in shown
    assert "process 4100 " in shown.partition("where it is:")[2]
    assert "  process 8 of it, " in shown
    assert "=> evaluate (/src/eval.py:13)" in shown
    page = processes(seen, record)
    assert "process 8 is in evaluate" in page
    assert "process 4100 " in page


def test_what_can_never_go_on_in_a_job_that_may_is_told_above_where_it_is(look):
    run, _, evidence = look((Kind.UNRESOLVED, "moving"))
    record = run.records[-1]
    part = dataclasses.replace(record.verdict, because="process 4120 (python): at 6 of 6 looks its only thread sleeps")
    by_key = {record.trial.key: evidence}
    shown = one.watched(record, by_key, job=ForeignJob(), where=Path("x"), argv=["again"], stuck=[part])
    words = wrap(f"a part of it can never go on: {part.because}", width=80, indent="  ")
    assert "\n".join(words) in shown.partition("where it is")[0]


def forms_of(run, run_dir):
    """The report in every form that names a next step."""
    names = ("md", "html", "short", "terminal", "viewer", "json")
    texts = {name: form(run, run_dir, name, hide=()) for name in names}
    for name in ("viewer", "json"):  # a command is a list of words there
        texts[name] = texts[name].replace('","', " ").replace('", "', " ")
    return {name: " ".join(text.split()) for name, text in texts.items()}


@pytest.mark.parametrize(
    ("verdict", "job", "wanted"),
    [
        ((Kind.UNRESOLVED, "may-go-on"), JOB, "Look again later, or with --follow"),
        ((Kind.UNRESOLVED, "ended-meanwhile"), JOB, "Look at its exit status and its output"),
        ((Kind.UNRESOLVED, "moving"), JOB, "Busy is not the same as progress"),
        ((Kind.SLOW, None), JOB, "Nothing is to be done: it progresses"),
        ((Kind.HANG, "deadlock"), JOB, "kill 4100"),
        ((Kind.HANG, "deadlock"), dataclasses.replace(JOB, is_over=True), "Look at its exit status and its output"),
    ],
)
def test_every_form_of_a_watch_names_the_same_next_step_as_its_terminal(look, verdict, job, wanted):
    run, run_dir, evidence = look(verdict, job=job)
    record = run.records[-1]
    shown = one.watched(record, {record.trial.key: evidence}, job=job, where=Path("x"), argv=())
    assert wanted.lower() in " ".join(shown.split()).lower()
    for name, text in forms_of(run, run_dir).items():
        assert wanted in text, name
        assert "ended: answered" not in text, name
        if name != "viewer":  # which has the words for runs without a next step
            assert "question is answered" not in text, name
    assert len(json.loads(form(run, run_dir, "json", hide=()))["next_steps"]) == 1


def test_a_stopped_job_is_let_go_on_by_the_same_command_in_every_form(look):
    run, _, evidence = look((Kind.UNRESOLVED, "paused"), job=JOB)
    pid = evidence.processes[-1].pid
    stopped = dataclasses.replace(evidence, processes=(dataclasses.replace(evidence.processes[-1], state="T"),))
    record = run.records[-1]
    shown = one.watched(record, {record.trial.key: stopped}, job=JOB, where=Path("x"), argv=())
    assert f"It goes on with:\n    kill -CONT {pid}\n" in shown
    assert watched_step(record.verdict, stopped, JOB).command == ("kill", "-CONT", str(pid))


def test_the_report_of_a_watch_says_what_runs_where_and_since_when(look):
    run, run_dir, evidence = look((Kind.HANG, "deadlock"), job=JOB)
    record = run.records[-1]
    shown = one.watched(record, {record.trial.key: evidence}, job=JOB, where=Path("x"), argv=())
    for name, text in forms_of(run, run_dir).items() | {("watch", " ".join(shown.split()))}:
        assert "python train.py --token" in text, name
        assert "in /data/run-7, on node-17, running for 2 h 3 min when the watch began" in text or name == "json"
    assert json.loads(form(run, run_dir, "json", hide=()))["job"]["directory"] == "/data/run-7"


def test_of_a_stack_without_frames_it_is_said_that_none_was_seen_and_a_job_that_ended_has_no_empty_line(look):
    bare = ThreadStack(tid=4100, name="MainThread", frames=())
    stacks = tuple(
        StackSample(id=f"s{n}", source="py-spy", native=False, t_s=1.0, rank=0, pid=4100, threads=(bare,))
        for n in range(3)
    )
    run, _, evidence = look((Kind.HANG, "deadlock"), stacks=stacks, main=4100)
    record = run.records[-1]
    cited = dataclasses.replace(record, verdict=dataclasses.replace(record.verdict, cites=("s2",)))
    job = ForeignJob(host="vm", age_s=10.0)
    shown = one.watched(cited, {record.trial.key: evidence}, job=job, where=Path("x"), argv=())
    assert "main thread, no frame of Python was seen, by py-spy\n" in shown
    assert "job:\n  on vm, running for 10 s when the watch began" in shown
    assert "without a name" not in shown


def test_what_hides_a_host_and_a_home_hides_them_in_what_is_said_of_the_job(look):
    run, run_dir, _ = look((Kind.HANG, "deadlock"), job=dataclasses.replace(JOB, directory="/home/ada/run"))
    for name in ("md", "html", "short", "terminal", "viewer", "json"):
        text = form(run, run_dir, name, hide=("node-17",))
        assert "node-17" not in text, name
        assert "/home/ada" not in text, name


def test_a_job_that_only_the_end_of_its_container_ends_has_no_command_for_it():
    verdict = Verdict(kind=Kind.HANG, rule="r", because="b", cites=("x",), confidence=Confidence.HIGH)
    words = watched_step(
        verdict, None, ForeignJob(end_it="a stop of its container: no signal from inside ends a process 1")
    )
    assert words.command == ()
    assert words.text.startswith("When you have seen enough, end the job with: a stop of its container")


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ({"reason": "exit 1: a message of ours: ptrace refused", "not_allowed": False}, "See what is in the way with"),
        ({"reason": "no word of it", "not_allowed": True}, "--cap-add SYS_PTRACE"),
        ({"reason": "ptrace refused (kernel.yama.ptrace_scope = 2)"}, "--cap-add SYS_PTRACE"),  # of an earlier version
    ],
)
def test_who_may_look_is_said_where_the_kernel_let_nobody(data, wanted):
    failure = from_json(SourceFailure, {"id": "failure-1", "source": "py-spy", **data})
    verdict = Verdict(
        kind=Kind.UNRESOLVED,
        confidence=Confidence.LOW,
        rule="unresolved",
        cause="not-looked-into",
        because="",
        cites=(),
    )
    assert wanted in watched_step(verdict, looked((), failures=(failure,)), None).text


def test_the_status_of_a_watch_names_its_next_step_and_its_job(look):
    _, run_dir, _ = look((Kind.UNRESOLVED, "may-go-on"), job=JOB)
    text = "\n".join(status_lines(run_dir))
    assert "next: Look again later, or with --follow" in text
    assert "every question is answered" not in text
    assert "node-17" in text


UNMARKED = {"heartbeats": (), "heartbeats_total": 0, "steps_done": 0, "steps_wanted": 0, "measurement": Measurement()}


def test_nothing_is_said_of_a_watched_job_that_only_who_started_it_can_know(look):
    ranks = tuple(RankFacts(id=f"rank-{rank}", rank=rank, pid=4100 + rank, silence_s=9.0) for rank in range(2))
    run, run_dir, _ = look((Kind.HANG, "deadlock"), job=JOB, **UNMARKED, ranks=ranks, logs=())
    page = form(run, run_dir, "md", hide=())
    for claim in (
        "started by |", "with seed", "planted fault", "steps done", "last mark", "silent for |", "| phase |",
        "after the start", "marks in", "to the end?", "healthy time", "It printed nothing", "1 run",
    ):  # fmt: skip
        assert claim not in page, claim
    assert "**Ranks,** the odd one out first" in page
    assert "s into the watch, by " in page
    assert "It was watched for" in page
    (trial,) = of_run(build(run, run_dir))["trials"]
    assert trial["steps"] is None


def test_a_rank_that_ended_in_the_watch_is_told_with_when(look):
    ranks = tuple(
        RankFacts(id=f"rank-{rank}", rank=rank, pid=4100 + rank, ended_s=4.0 * rank or None) for rank in (0, 1)
    )
    run, run_dir, _ = look((Kind.HANG, "deadlock"), **UNMARKED, ranks=ranks)
    assert "| 0 | no |\n| 1 | at 4.0 s |" in form(run, run_dir, "md", hide=())


def test_a_job_that_ended_while_it_was_watched_is_not_called_still_running(look):
    run, _, _ = look((Kind.UNRESOLVED, "ended-meanwhile"))
    outcome = run.records[0].outcome
    assert ended(outcome) == "still running when it was judged"
    assert ended(dataclasses.replace(outcome, exit=Exit())) == "while it was watched, how nobody saw"
