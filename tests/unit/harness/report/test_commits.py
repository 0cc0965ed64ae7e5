"""What a report says along an axis of commits, or of other words: of one it knows nothing about the next."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from harness.core.boundary import Boundary, Finding
from harness.core.campaign import Task
from harness.core.evidence import LogTail
from harness.core.outcome import Ending, Exit
from harness.core.point import Axis, AxisType, Point
from harness.core.space import Bundle, Factor, Space
from harness.core.verdict import Answer, Confidence, Kind, Verdict
from harness.report.bundle import bundle
from harness.report.hide import Hider
from harness.report.render import markdown, terminal
from harness.report.write import build
from harness.store import layout

COMMITS = ("5ab2e3d74d58", "fcc87ec2a732", "cf795942bab3", "d10883cf4fe7", "aa6ee7e9629f")
FIRST, GOOD, BAD, NEXT, LAST = COMMITS
TRACEBACK = """Traceback (most recent call last):
  File "{tree}/src/train.py", line 5, in <module>
    raise RuntimeError("flaky data")
RuntimeError: flaky data
"""


@pytest.fixture
def asked(parts, make_run, tmp_path):
    """``asked({commit: "pass" or "crash" or "hang"})`` gives the run of a bisect over commits and its folder."""

    def one(commit: str, ending: str, repeat: int):
        record, evidence = parts["passed"](1, repeat)
        tree = str(tmp_path / "runs" / "trees" / commit)
        trial = dataclasses.replace(
            record.trial,
            target="command",
            point=Point.of({"commit": commit}),
            config={"command": "python src/train.py", "args": {}},
            code=f"commit {commit}{'0' * 28} under 0.1.0+0123456789ab",
            tree=tree,
        )
        if ending == "pass":
            return dataclasses.replace(record, trial=trial), evidence
        kind, cause = (Kind.CRASH, "RuntimeError") if ending == "crash" else (Kind.HANG, "deadlock")
        verdict = Verdict(
            kind=kind, cause=cause, rule="crashed", because="raised RuntimeError in train.<module>: flaky data",
            cites=("exit",), confidence=Confidence.PROOF, signature="CRASH RuntimeError: train.<module>",
        )  # fmt: skip
        outcome = dataclasses.replace(record.outcome, ending=Ending.EXITED, exit=Exit(code=1))
        record = dataclasses.replace(record, trial=trial, verdict=verdict, answer=Answer.BAD, outcome=outcome)
        text = TRACEBACK.format(tree=tree)
        log = LogTail(id="exit", stream="stderr", text=text, size_bytes=len(text))
        return record, dataclasses.replace(evidence, logs=(log,))

    def run(endings: dict[str, str], *, finding: Finding = Finding.THRESHOLD, values=COMMITS):
        bundles = tuple(Bundle(commit=value) for value in values)
        axis = Axis(name="commit", path="", type=AxisType.ORDERED, values=values)
        factor = Factor(axis=axis, good=values[0], bad=values[-1], bundles=bundles)
        spec = parts["spec"](question="Since which commit does it fail?", target="command", axis=axis, controls=())
        matrix = dataclasses.replace(spec.matrix, space=Space(factors=(factor,)), command=("python", "src/train.py"))
        spec = dataclasses.replace(spec, matrix=matrix, task=Task.BISECT, axis="commit")
        passing = [value for value, ending in endings.items() if ending == "pass"]
        failing = [value for value, ending in endings.items() if ending != "pass"]
        boundary = Boundary(
            axis="commit",
            finding=finding,
            last_good=passing[-1] if passing else None,
            first_bad=failing[0] if failing else None,
        )
        trials = [one(value, ending, repeat) for repeat, (value, ending) in enumerate(endings.items())]
        options = (("--axis", f"commit={values[0]}..{values[-1]}"),)
        return make_run(parts["Canned"](spec, trials, boundary, options=options))

    return run


def shown(run, run_dir: Path) -> str:
    """What a terminal shows, without its line ends."""
    return " ".join(terminal.text(build(run, run_dir), run_dir / "report.md").split())


def test_a_commit_that_fails_says_nothing_of_those_behind_it(asked):
    text = shown(*asked({FIRST: "pass", GOOD: "pass", BAD: "crash"}))

    assert text.startswith(f"CRASH (RuntimeError) at commit={BAD}, not at commit={GOOD}. ")
    assert f"Not tried after it: {NEXT}, {LAST}." in text
    assert " on. " not in text


def test_commits_behind_it_that_were_tried_are_told_of_as_they_ended(asked):
    text = shown(*asked({GOOD: "pass", BAD: "crash", LAST: "hang"}))

    assert f"After it: {LAST} 1 HANG (deadlock). Not tried after it: {NEXT}." in text


def test_the_last_commit_is_named_where_not_all_are(asked):
    many = (*COMMITS[:3], *(f"{number:012x}" for number in range(9)), LAST)
    text = shown(*asked({GOOD: "pass", BAD: "crash"}, values=many))

    assert f"000000000003 and 6 more, {LAST} the last." in text


def test_to_look_at_the_last_commit_is_a_next_step(asked):
    run, run_dir = asked({GOOD: "pass", BAD: "crash"})
    page = markdown.render(build(run, run_dir), hide=str, figures="figures")

    assert f"See how commit={LAST} ends, the last one asked for: it was not tried." in page
    assert "--check-above 2" in page


def test_where_the_first_commit_fails_it_is_not_called_the_smallest(asked):
    text = shown(*asked({FIRST: "crash"}, finding=Finding.ALL_FAIL))

    assert text.startswith(f"CRASH (RuntimeError) at commit={FIRST}. ")
    assert "It is the first value asked for" in text


def test_a_line_of_a_commit_is_named_as_git_shows_it_since_its_worktree_is_gone(asked):
    run, run_dir = asked({GOOD: "pass", BAD: "crash"})
    where = f"<module> (git show {BAD}:src/train.py, line 5)"
    text = shown(run, run_dir)
    page = markdown.render(build(run, run_dir), hide=str, figures="figures")

    assert f"{where} commit " in text
    assert f"next: Look at {where}; the traceback is in Evidence, commit={BAD}." in text
    assert f"| program | commit `{BAD}`, in a worktree that was removed at the end: `git show {BAD}:FILE` |" in page


SUBJECTS = {GOOD: "a comment", BAD: "read data at random", LAST: "exchange gradients *at once* " + "and more " * 9}


def test_commits_are_told_with_their_subjects(asked, tmp_path):
    run, run_dir = asked({GOOD: "pass", BAD: "crash"})
    layout.commits(run_dir).write_text(json.dumps(SUBJECTS))
    text = shown(run, run_dir)
    page = markdown.render(build(run, run_dir), hide=str, figures="figures")

    assert f'commit={BAD} ("read data at random") crashes (RuntimeError), 1 of 1 trial;' in text
    assert f'commit={GOOD} ("a comment") passes, 1 of 1 trial.' in text
    assert f"X {BAD}  read data at random\n  {NEXT}  \n  {LAST}  {SUBJECTS[LAST].strip()}" in page

    passed_on = bundle(run_dir, tmp_path / "passed_on", hider=Hider()).folder
    assert "read data at random" in (passed_on / "report.md").read_text()


def test_a_long_subject_is_shortened_in_a_sentence(asked):
    run, run_dir = asked({GOOD: "pass", BAD: "crash", LAST: "crash"})
    layout.commits(run_dir).write_text(json.dumps(SUBJECTS))

    assert f'After it: {LAST} ("exchange gradients *at once* and more and more and..") 1 CRASH' in shown(run, run_dir)
