"""The viewer: the report's own words and counts, pictures that say no more than the marks, and nobody else's script."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
from itertools import chain

import pytest

from harness.core.errors import NothingToShowError
from harness.core.evidence import FIRST_MARKS, LAST_MARKS, Evidence, Heartbeat, RankFacts
from harness.core.outcome import Exit
from harness.core.trial import NEVER_S
from harness.report.compare import compare
from harness.report.figures.curves import memory
from harness.report.findings import Findings
from harness.report.hide import Hider
from harness.report.viewer import data
from harness.report.viewer.data import StretchKind, of_run, tracks
from harness.report.viewer.page import index, render
from harness.report.viewer.traces import perfetto, speedscope
from harness.report.write import build

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def mark(t_s, phase, edge, *, seq=0, rank=0, step=0, detail=None):
    return Heartbeat(seq=seq, t_s=t_s, rank=rank, pid=10 + rank, phase=phase, edge=edge, step=step, detail=detail)


STEP = (
    mark(1.0, "forward", "begin"),
    mark(1.5, "forward", "progress", detail="blocks.0"),
    mark(2.5, "forward", "progress", detail="blocks.1"),
    mark(2.6, "forward", "end"),
    mark(3.0, "backward", "begin"),
    mark(4.0, "backward", "progress", detail="blocks.1"),
)


def data_of(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_a_track_goes_from_0_to_the_end_and_names_only_what_was_said():
    (track,) = tracks(Evidence(steps_wanted=1, heartbeats=STEP, heartbeats_total=6), end_s=10.0)

    said = [(s.start_s, s.end_s, s.kind, s.phase) for s in track.stretches]
    assert said == [
        (0.0, 1.0, StretchKind.STARTING, ""),
        (1.0, 2.6, StretchKind.PHASE, "forward"),
        (2.6, 3.0, StretchKind.BETWEEN, ""),
        (3.0, 4.0, StretchKind.PHASE, "backward"),
        (4.0, 10.0, StretchKind.NO_MARK, "backward"),
    ]
    assert [(p.start_s, p.end_s, p.name) for p in track.parts] == [
        (1.0, 1.5, "blocks.0"),
        (1.5, 2.5, "blocks.1"),
        (3.0, 4.0, "blocks.1"),
    ]


def test_marks_that_were_not_kept_are_a_gap_and_no_phase():
    every = [mark(float(i), "forward", "progress", seq=i, detail=f"blocks.{i}") for i in range(1000)]
    kept = (*every[:FIRST_MARKS], *every[-LAST_MARKS:])
    (track,) = tracks(Evidence(steps_wanted=1, heartbeats=kept, heartbeats_total=1000), end_s=1000.0)

    gaps = [stretch for stretch in track.stretches if stretch.kind is StretchKind.NOT_KEPT]
    assert [(gap.start_s, gap.end_s, gap.marks) for gap in gaps] == [(49.0, 800.0, 750)]
    assert "blocks.800" not in {part.name for part in track.parts}
    assert "blocks.801" in {part.name for part in track.parts}


def test_a_rank_that_ended_is_not_silent_afterwards():
    gone = RankFacts(
        id="rank-1", rank=1, pid=11, heartbeats=(mark(1.0, "forward", "begin", rank=1),), heartbeats_total=1,
        exit=Exit(signal=9), ended_s=2.0,
    )  # fmt: skip
    never = RankFacts(id="rank-2", rank=2, pid=12)
    left = RankFacts(id="rank-0", rank=0, pid=10, heartbeats=STEP, heartbeats_total=6)
    found = tracks(Evidence(steps_wanted=1, ranks=(left, gone, never)), end_s=10.0)

    assert [track.rank for track in found] == [0, 1, 2]
    assert (found[1].stretches[-1].end_s, found[1].how) == (2.0, "signal 9")
    assert [(s.kind, s.end_s) for s in found[2].stretches] == [(StretchKind.STARTING, 10.0)]


def test_the_page_says_what_the_report_says_of_the_same_trial(make_run):
    run, run_dir = make_run("threshold")
    report = build(run, run_dir)
    found = data_of(render(report, hide=Hider().text))["runs"][0]

    assert (found["verdict"], found["answer"]) == (report.summary.verdict, report.summary.answer)
    trial = found["trials"][found["subject"]]
    assert trial["verdict"] == "HANG (deadlock)"
    assert trial["because"].startswith("rank 0 silent for 6.1 s in backward of step 1")
    rows = {row["at"][0]: (row["good"], row["bad"]) for row in found["cells"] if not row["at"][-1]}
    assert rows[5][1] > 0
    assert rows[4][0] > 0
    assert sum(len(row["trials"]) for row in found["cells"]) == len(run.records)
    frames = [found["frames"][i][0] for i in found["stacks"][trial["samples"][0]["threads"][0]][0]]
    assert "acquire_forever (harness/specimens/backward_deadlock.py:26)" in frames


def test_the_page_opens_at_the_thread_that_the_report_points_at(make_run, monkeypatch):
    """A worker that is stuck, say, and not the main thread that waits for it."""
    run, run_dir = make_run("threshold")
    monkeypatch.setattr(data, "thread_to_show", lambda evidence, verdict, sample: sample.threads[-1])
    trials = data.of_run(build(run, run_dir))["trials"]
    samples = list(chain.from_iterable(trial.get("samples", ()) for trial in trials))
    assert samples
    assert all(sample["main"] == len(sample["threads"]) - 1 for sample in samples)


def test_an_axis_of_whole_numbers_has_no_halves_on_it(make_run):
    run, run_dir = make_run("no_failure")
    run = dataclasses.replace(run, records=tuple(r for r in run.records if r.trial.point.get("n_layers") in (1, 2, 3)))
    picture = memory(Findings(run=run, run_dir=run_dir), str)
    assert {"1", "2", "3"} <= set(re.findall(r">([\d.]+)</text>", picture.svg))
    assert not re.findall(r">[123]\.[05]</text>", picture.svg)


def test_a_trial_that_had_no_limit_has_none_on_the_page(make_run):
    run, run_dir = make_run("threshold")
    first, *rest = run.records
    endless = dataclasses.replace(first.trial.budget.total, seconds=NEVER_S)
    trial = dataclasses.replace(first.trial, budget=dataclasses.replace(first.trial.budget, total=endless))
    run = dataclasses.replace(run, records=(dataclasses.replace(first, trial=trial), *rest))
    limits = [one["limit"] for one in of_run(build(run, run_dir))["trials"]]
    assert limits[0] is None
    assert all(limits[1:])


def test_names_are_hidden_and_no_script_but_ours_may_run(make_run):
    run, run_dir = make_run("threshold")
    spec = dataclasses.replace(run.spec, question="</script><script>alert(1)</script> of ada@example.org?")
    page = render(build(dataclasses.replace(run, spec=spec), run_dir), hide=Hider(["ada"]).text)

    assert "<script>alert" not in page
    assert page.count("</script") == 2
    assert "ada@example.org" not in page
    assert "/home/ada" not in page
    assert "</script><script>alert" in data_of(page)["title"]
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'" in page
    assert not re.findall(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|https?://(?!www\.w3\.org)", script)


def test_two_runs_stand_side_by_side_with_their_own_answers(make_run):
    (before, before_dir), (after, after_dir) = make_run("no_failure"), make_run("threshold")
    found = data_of(render(compare(before, after, after_dir, before_dir=before_dir), hide=Hider().text))

    assert [run["verdict"] for run in found["runs"]] == [
        "PASS: nothing failed",
        "HANG (deadlock) at n_layers=5, not at n_layers=4",
    ]
    (broken,) = [pair for pair in found["pairs"] if pair["change"] == "broken"]
    assert broken["name"] == "n_layers=5"
    assert found["runs"][1]["trials"][broken["trials"][1]]["kind"] == "HANG"


def test_perfetto_has_a_process_for_each_trial_and_each_span_inside_its_trial(make_run):
    run, run_dir = make_run("threshold")
    events = json.loads(perfetto(build(run, run_dir), hide=Hider().text))["traceEvents"]

    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert len(names) == len(run.records)
    assert any(name.endswith("n_layers=5: HANG (deadlock)") for name in names)
    whole = {event["pid"]: event for event in events if event["name"] == "trial"}
    for event in events:
        if event["ph"] == "X":
            trial = whole[event["pid"]]
            assert trial["ts"] <= event["ts"] <= event["ts"] + event["dur"] <= trial["ts"] + trial["dur"] + 1
    assert {"no mark any more (in backward)", "stacks taken", "SIGTERM sent"} <= {event["name"] for event in events}


def test_speedscope_has_stacks_outermost_first_and_weighs_samples_not_seconds(make_run):
    run, run_dir = make_run("threshold")
    found = json.loads(speedscope(build(run, run_dir), hide=Hider().text))

    profile = found["profiles"][found["activeProfileIndex"]]
    assert "HANG (deadlock)" in profile["name"]
    assert (profile["type"], profile["unit"], profile["weights"]) == ("sampled", "none", [1, 1, 1])
    names = [found["shared"]["frames"][i]["name"] for i in profile["samples"][0]]
    assert (names[0], names[-1]) == ("run_step", "__futex_abstimed_wait_common64")


def test_a_program_without_ranks_has_none_in_the_traces_of_others(make_run, parts):
    canned = parts["threshold"]()
    for ranks, named in (((), False), ((RankFacts(id="rank-0", rank=0, pid=4100, silence_s=9.0),), True)):
        canned.trials = [
            (one, evidence and dataclasses.replace(evidence, ranks=ranks)) for one, evidence in canned.trials
        ]
        report = build(*make_run(canned))
        events = json.loads(perfetto(report, hide=Hider().text))["traceEvents"]
        rows = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
        names = [profile["name"] for profile in json.loads(speedscope(report, hide=Hider().text))["profiles"]]
        assert ("rank 0" in rows, any("rank 0, process 4100" in name for name in names)) == (named, named)
        assert all("process" in name for name in names)


def test_a_run_without_stacks_has_no_profile_and_says_so(make_run):
    run, run_dir = make_run("no_failure")

    with pytest.raises(NothingToShowError, match="no stack was taken in any of its trials"):
        speedscope(build(run, run_dir), hide=Hider().text)


def test_the_index_lists_runs_with_links_to_what_is_there(make_run):
    _, run_dir = make_run("threshold")
    (run_dir / "report.html").write_text("")
    rows = data_of(index(run_dir.parent, hide=Hider().text))["index"]

    (row,) = [row for row in rows if row["name"] == run_dir.name]
    assert row["question"] == "From which n_layers in 1..12 does training fail?"
    assert row["links"] == [["report", f"{run_dir.name}/report.html"]]


def test_every_canned_run_has_a_page(make_run):
    for name in ("threshold", "no_failure", "all_fail", "no_threshold_slow", "inconclusive", "aborted", "empty"):
        run, run_dir = make_run(name)
        found = of_run(build(run, run_dir))
        assert len(found["trials"]) == len(run.records)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on PATH")
def test_a_browser_draws_the_trial_and_asks_for_nothing(make_run, tmp_path):
    run, run_dir = make_run("threshold")
    page = tmp_path / "viewer.html"
    page.write_text(render(build(run, run_dir), hide=Hider().text), encoding="utf-8")
    done = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--no-first-run", "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}",
         "--virtual-time-budget=4000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip

    body = done.stdout.partition("</noscript>")[2].partition("<footer>")[0]
    assert "HANG (deadlock)" in body
    assert "no mark for 6.9 s, in backward of step 1" in body
    assert "acquire_forever (harness/specimens/backward_deadlock.py:26)" in body
    assert "CONSOLE" not in done.stderr
