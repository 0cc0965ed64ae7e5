"""Reports over many cells: what they say of each axis, what is folded, and that two runs can be compared."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from harness.cli.ci import annotations_of
from harness.core.campaign import ShardProgram
from harness.core.cause import Minimised, MinimiseFinding
from harness.core.verdict import Kind
from harness.report.claims import lint
from harness.report.compare import compare
from harness.report.figures.boxes import plane
from harness.report.findings import Findings
from harness.report.next_steps import next_steps
from harness.report.render import FORMS, html, markdown
from harness.report.render.json import published
from harness.report.sections import OVER_CELLS, SECTIONS
from harness.report.summary import place_of
from harness.report.tried import pairs_of
from harness.report.write import build, form, summary_text

DEEP, LATE = {"n_layers": 12}, {"ckpt": "reentrant"}
BOTH, LONG = {**DEEP, **LATE}, {**DEEP, **LATE, "seq_len": 512}
CELLS = [({}, "pass", 0), ({}, "pass", 1), (DEEP, "pass", 0), (DEEP, "pass", 1), (LATE, "pass", 0), (LATE, "pass", 1),
         (BOTH, "hang", 0), (BOTH, "hang", 1), (LONG, "slow", 0)]  # fmt: skip


@pytest.fixture
def mixed(make_campaign):
    return make_campaign(CELLS)


def block(report, name):
    return dict(report.blocks)[name].markdown


FLAGS = """
version: 1
name: flags
description: Which of two flags does the crash need?
axes:
  tied: {type: flag, apply: {config: model.tied_head}}
  find_unused: {type: flag, apply: {config: parallel.find_unused_parameters}}
base: {parallel.allow_known_bad: true}
strategy: list
include: [{}, {find_unused: 1}, {tied: 1}, {tied: 1, find_unused: 1}]
"""


def test_the_heat_map_shows_the_cells_that_ended_in_most_ways(make_campaign):
    trials = [({"n_layers": n, "ckpt": c}, "pass") for n in (1, 12) for c in ("none", "reentrant")]
    trials += [({"n_layers": n, "ckpt": c, "seq_len": 512}, end) for n, c, end in (
        (1, "none", "pass"), (1, "reentrant", "crash"), (12, "none", "pass"), (12, "reentrant", "hang"))]  # fmt: skip
    run, _ = make_campaign(trials)
    across, down, settings, inside = plane(Findings(run=run), list(Findings(run=run).by_cell))
    assert ({across, down}, settings, len(inside)) == ({"n_layers", "ckpt"}, "seq_len=512", 4)


def test_cells_that_failed_alike_stand_together_the_failure_of_the_headline_first(make_campaign):
    ends = {(False, False): "pass", (False, True): "crash", (True, False): "hang", (True, True): "crash"}
    trials = [({"tied": t, "find_unused": u}, end) for (t, u), end in ends.items()]
    report = build(*make_campaign(trials, text=FLAGS))
    rows = block(report, "cells").splitlines()[2:]
    assert report.summary.verdict.startswith("CRASH")
    assert [row.split("|")[1].split()[1] for row in rows] == ["CRASH", "CRASH", "HANG", "PASS"]


def test_a_cell_that_passed_and_failed_is_counted_as_what_failed_in_some_of_its_trials(make_campaign):
    trials = [({"tied": False}, "pass"), ({"tied": True}, "crash"), ({"tied": True}, "pass", 1)]
    answer = build(*make_campaign(trials, text=FLAGS)).summary.answer
    assert re.search(r"1 PASS, 1 CRASH( \(\w+\))? in some trials, PASS in others\.", answer), answer


@pytest.mark.parametrize("name", FORMS.names())
def test_a_flag_is_spelt_the_same_in_every_form(make_campaign, name):
    ends = {(False, False): "pass", (False, True): "slow", (True, False): "hang", (True, True): "hang"}
    trials = [({"tied": t, "find_unused": u}, end, k) for (t, u), end in ends.items() for k in range(3)]

    text = form(*make_campaign(trials, text=FLAGS), name)

    words = set(re.findall(r"(?:tied|find_unused|tied_head|find_unused_parameters|allow_known_bad)=(\w+)", text))
    assert words <= {"true", "false"}
    assert words or name in ("viewer", "perfetto")  # they have each axis' value by itself
    assert not re.search(r"\b(?:True|False|good=|`good`)\b", text)


def test_minimal_pairs_become_hypotheses_with_for_against_missing_and_what_decides(mixed):
    report = build(*mixed)
    rows = [line for line in block(report, "hypotheses").splitlines() if line.startswith("| depends on")]
    ckpt = next(row for row in rows if "`ckpt`" in row)
    assert (
        "two cells that differ only here failed 2 of 2 and passed 2 of 2; chance alone does as much with p = " in ckpt
    )
    assert "not sufficient" not in ckpt, "two passes beside two failures are no surprise"
    seq_len = next(row for row in rows if "`seq_len`" in row)
    assert "not necessary" in seq_len
    assert "| - | not necessary" in seq_len  # nothing speaks for it


def test_pairs_speak_for_a_failure_that_is_named_by_its_signature(make_campaign):
    ends = {(False, False): "pass", (False, True): "crash", (True, False): "pass", (True, True): "crash"}
    trials = [({"tied": t, "find_unused": u}, end) for (t, u), end in ends.items()]

    text = block(build(*make_campaign(trials, text=FLAGS, signature="boo")), "hypotheses")

    assert "**CRASH (boo)**" in text
    assert "| depends on `find_unused` | 2 of 2 pairs that differ only here ended differently |" in text
    assert "It was seen in both cells with find_unused=true, and in no other." in text
    assert re.search(r"\| depends on `tied` \| - \| .*1 of 1 pair that differ only here ended alike", text)


def test_the_headline_counts_cells_and_names_no_axis_that_chance_would_implicate_too(mixed):
    told = build(*mixed).summary
    assert told.verdict == "2 of 5 cells are not as expected: HANG (deadlock) instead of PASS, SLOW instead of HANG"
    assert told.answer.startswith(
        "Not as expected: n_layers=12,ckpt=reentrant (HANG (deadlock) instead of PASS); "
        "n_layers=12,ckpt=reentrant,seq_len=512 (SLOW instead of HANG). "
        "5 cells: 3 PASS, 1 HANG (deadlock), 1 SLOW. SLOW: n_layers=12,ckpt=reentrant,seq_len=512. "
    )
    assert "depends on" not in told.answer
    assert told.claim == "Observed"
    assert (told.rank, told.place.text) == ("rank 0", "acquire_forever (harness/specimens/backward_deadlock.py:26)")


def test_a_cell_that_ended_otherwise_than_expected_stands_first(mixed):
    rows = block(build(*mixed), "cells").splitlines()[2:]
    assert rows[0].startswith("| 2 HANG (deadlock) | `n_layers=12,ckpt=reentrant` |")
    assert "| PASS | **not as expected** |" in rows[0]


def test_a_matrix_that_expects_nothing_is_not_told_what_was_expected(make_campaign):
    from harness.report.sections.cells import cells_section

    run, run_dir = make_campaign(CELLS)
    silent = dataclasses.replace(run.spec.matrix, expect=())
    changed = dataclasses.replace(run, spec=dataclasses.replace(run.spec, matrix=silent))
    found = cells_section(Findings(run=changed, run_dir=run_dir))
    assert "expected" not in found.markdown


def test_one_failure_is_observed_and_no_more(make_campaign):
    told = build(*make_campaign([({}, "pass", 0), (BOTH, "hang", 0)])).summary
    assert told.claim == "Observed"
    assert "depends on" not in told.answer


@pytest.mark.parametrize("section", OVER_CELLS)
def test_every_section_bears_a_run_that_was_cut_off_and_an_empty_one(section, make_campaign):
    cut = make_campaign(CELLS[:7], ended="interrupted", answered=False)
    empty = make_campaign([], ended="interrupted", answered=False)
    for run, run_dir in (cut, empty):
        found = SECTIONS.load(section)(Findings(run=run, run_dir=run_dir))
        assert found is None or found.markdown.strip()
    assert build(*empty).summary.verdict == "No answer (interrupted)"
    assert "--resume" in build(*cut).summary.steps[0].command


@pytest.mark.parametrize("answered", [True, False])
def test_a_matrix_of_which_cells_were_not_run_has_not_passed(make_campaign, answered):
    run, run_dir = make_campaign([({"tied": True}, "pass")], text=FLAGS, ended="interrupted", answered=answered)
    summary = build(run, run_dir).summary
    assert (summary.verdict, summary.tone) == ("1 of 4 cells passed", "unsure")
    assert summary.answer.startswith("Partial (interrupted): 4 cells: 3 not started, 1 PASS.")


def test_one_program_that_was_cut_off_is_run_again_and_not_resumed_as_a_matrix(make_campaign):
    run, _ = make_campaign(CELLS[:2], ended="interrupted", answered=False)
    matrix = run.spec.matrix
    single = dataclasses.replace(matrix, space=dataclasses.replace(matrix.space, factors=()))
    alone = dataclasses.replace(run, spec=dataclasses.replace(run.spec, matrix=single), records=run.records[:1])
    assert [step.command for step in next_steps(Findings(run=alone))] == [run.argv]
    assert ["--resume" in step.command for step in next_steps(Findings(run=run))] == [True]


def test_what_a_run_shows_is_derived_once_and_taken_by_every_section_and_form(mixed, monkeypatch):
    derived = []
    monkeypatch.setattr("harness.report.findings.pairs_of", lambda *a, **k: derived.append(a) or pairs_of(*a, **k))
    run, run_dir = mixed
    report = build(run, run_dir)
    for name in ("md", "html", "json", "junit", "terminal", "short", "github"):
        FORMS.load(name)(report, hide=str)
    assert len(derived) == 1
    assert report.run is run


def test_the_json_has_a_line_for_each_trial_and_each_section(mixed):
    report = build(*mixed)
    lines = form(*mixed, "json", hide=()).splitlines()
    assert sum(line.startswith('   {"trial":') for line in lines) == len(CELLS)
    assert sum(line.startswith('  {"name":') for line in lines) == len(report.blocks)


@pytest.mark.parametrize("name", list(FORMS))
def test_every_form_is_written_and_claims_no_more_than_cells_can_show(name, mixed):
    text = form(*mixed, name, hide=())
    if name in ("md", "short", "github", "terminal"):
        assert lint(text) == []
    if name == "json":
        jsonschema = pytest.importorskip("jsonschema")
        jsonschema.Draft202012Validator(json.loads(published())).validate(json.loads(text))
    if name == "junit":
        suite = ET.fromstring(text).find("testsuite")
        assert [suite.get(key) for key in ("tests", "failures", "errors")] == ["5", "2", "0"]


def test_the_terminal_needs_80_columns(mixed):
    assert [line for line in summary_text(mixed[0]).splitlines() if len(line) > 80] == []


def test_five_hundred_cells_keep_the_summary_first_and_fold_what_passed(make_campaign):
    text = (
        "version: 1\nname: many\ndescription: Many cells.\nbase: {train.steps: 8}\naxes:\n"
        "  n_layers: {type: ordered, range: [1, 25]}\n"
        "  seq_len: {type: ordered, range: [1, 20], apply: {config: train.seq_len}}\nstrategy: full\n"
    )
    cells = [{"n_layers": i, "seq_len": j} for i in range(1, 26) for j in range(1, 21)]
    trials = [(cell, "hang" if cell["n_layers"] > 24 else "pass", 0) for cell in cells]
    run, run_dir = make_campaign(trials, text=text)
    report = build(run, run_dir)
    lines = markdown.render(report).splitlines()
    said = "**HANG (deadlock) in all 20 cells with n_layers=25, and in no other.** 500 cells: 480 PASS, 20 HANG"
    assert lines[2].startswith(said)
    shown = block(report, "cells")
    assert "480 cells that passed</summary>" in shown
    assert shown.index("HANG (deadlock)") < shown.index("480 cells that passed")
    page = html.render(report, hide=str)
    assert page.count("<tr>") > 1000
    assert len(page) < 2 * 2**20


def test_two_runs_of_the_same_cells_show_what_a_change_fixed(make_campaign):
    before, _ = make_campaign([({}, "pass", 0), (BOTH, "hang", 0), (BOTH, "hang", 1), (LONG, "hang", 0)])
    after, after_dir = make_campaign([({}, "pass", 0), (BOTH, "pass", 0), (BOTH, "pass", 1), (LONG, "hang", 0)])
    report = compare(before, after, after_dir)
    assert report.summary.verdict == "1 fixed"
    assert "HANG (deadlock) before, PASS after" in report.summary.answer
    assert "2 of 3 cells did not change" in report.summary.answer
    rows = block(report, "cells").splitlines()
    assert rows[2].endswith("| **fixed** |")
    assert lint(markdown.render(report)) == []
    for name in FORMS:
        if name != "terminal":
            assert FORMS.load(name)(report, hide=str)


FEWER = """
version: 1
name: fewer
description: Without the axis ckpt.
axes:
  n_layers: {values: [1, 12], type: ordered}
include: [{}, {n_layers: 12}]
"""


@pytest.mark.parametrize("sets", [{}, {"train": {"checkpointing": "reentrant"}}])
def test_a_cell_of_an_axis_that_the_other_run_lacks_is_compared_where_that_axis_stood_as_it_did(make_campaign, sets):
    before, _ = make_campaign([({}, "pass", 0), (DEEP, "pass", 0)], text=FEWER)
    trials = [dataclasses.replace(r.trial, config={**r.trial.config, **sets}) for r in before.records]
    records = [dataclasses.replace(r, trial=t) for r, t in zip(before.records, trials, strict=True)]
    before = dataclasses.replace(before, records=tuple(records))
    after, after_dir = make_campaign([({}, "pass", 0), (DEEP, "pass", 0), (LATE, "pass", 0), (BOTH, "hang", 0)])
    report = compare(before, after, after_dir)
    rows = dict(re.findall(r"^\| `(.*?)` .*\| ([^|]*) \|$", block(report, "cells"), re.MULTILINE))
    broken = "ckpt=reentrant, n_layers=12, seq_len=128"
    assert rows[broken] == ("**broken**" if sets else "only after")
    assert report.summary.verdict == ("1 broken" if sets else "Nothing changed")
    new = f" Tried by the later run alone, and failing: {broken} (HANG (deadlock))."
    assert report.summary.answer.endswith(new) is not bool(sets)


def test_runs_without_a_common_cell_are_not_compared(make_campaign):
    before, _ = make_campaign([({}, "pass", 0)])
    after, after_dir = make_campaign([(BOTH, "hang", 0)])
    told = compare(before, after, after_dir).summary
    assert told.answer == "The two runs have no cell in common, so nothing can be compared."
    assert (told.verdict, told.claim) == ("Nothing to compare", "")


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_program_whose_own_files_no_run_records_may_have_changed_in_them(make_campaign, is_ours):
    before, _ = make_campaign([(BOTH, "hang", 0)])
    after, after_dir = make_campaign([(BOTH, "pass", 0)])
    if not is_ours:
        before, after = _of_another_program(before), _of_another_program(after)
    report = compare(before, after, after_dir)
    differs = block(report, "fixed")
    assert differs.startswith("Code and machine" if is_ours else "Command, nsa-harness and machine are the same.")
    assert ("Not compared: the program's own files" in differs) is not is_ours
    assert report.summary.steps[0].text.startswith("See whether the program's own files changed") is not is_ours


def _of_another_program(run, *, directory="/here", **changes):
    records = []
    for record in run.records:
        trial = dataclasses.replace(
            record.trial, target="command", config={"command": "python train.py", "directory": directory}
        )
        records.append(dataclasses.replace(record, trial=trial))
    return dataclasses.replace(run, records=tuple(records), **changes)


@pytest.mark.parametrize("is_merged", [False, True])
def test_two_commits_of_a_program_are_what_differs(make_campaign, is_merged):
    before, _ = make_campaign([(BOTH, "hang", 0), (BOTH, "hang", 1)])
    after, after_dir = make_campaign([(BOTH, "pass", 0), (BOTH, "pass", 1)])
    place = after.records[0].trial.point
    shards = (
        ShardProgram(name="shard 1/2", program="bbb", cells=(place,), invocation=None),
        ShardProgram(name="shard 2/2", program="aaa", cells=(), invocation=None),
    )
    before = _of_another_program(before, program="aaa")
    after = _of_another_program(after, **({"programs": shards} if is_merged else {"program": "bbb"}))
    report = compare(before, after, after_dir)
    assert "| the program | commit aaa | commit bbb |" in block(report, "fixed")
    assert "Of the program's own files, those are compared that git tracks" in block(report, "fixed")
    assert "does not record" not in block(report, "fixed")
    assert "program: commit aaa -> commit bbb" in block(report, "pairs")
    assert report.summary.claim == "Isolated"
    assert report.summary.steps == ()


def test_a_commit_that_only_one_run_recorded_is_shown_and_proves_no_difference(make_campaign):
    before, _ = make_campaign([(BOTH, "hang", 0), (BOTH, "hang", 1)])
    after, after_dir = make_campaign([(BOTH, "pass", 0), (BOTH, "pass", 1)])
    report = compare(_of_another_program(before), _of_another_program(after, program="bbb"), after_dir)
    row = "| the program | a program whose commit was not recorded | commit bbb |"
    assert row in block(report, "fixed")
    assert "Not compared: the program's own files" in block(report, "fixed")
    assert report.summary.claim == "Observed"
    assert report.summary.steps[0].text.startswith("See whether the program's own files changed")


def test_the_folder_of_a_program_is_compared(make_campaign):
    before, _ = make_campaign([(BOTH, "hang", 0)])
    after, after_dir = make_campaign([(BOTH, "pass", 0)])
    before, after = _of_another_program(before), _of_another_program(after, directory="/there")
    report = compare(before, after, after_dir)
    assert "| directory | `/here` | `/there` |" in block(report, "fixed")


@pytest.mark.parametrize(("fails", "claim"), [(1, "Observed"), (5, "Isolated")])
def test_a_difference_that_may_be_chance_isolates_nothing(make_campaign, fails, claim):
    before, _ = make_campaign([(LONG, "pass", n) for n in range(5)])
    after, after_dir = make_campaign([(LONG, "hang" if n < fails else "pass", n) for n in range(5)])
    records = [dataclasses.replace(r, trial=dataclasses.replace(r.trial, code="another")) for r in after.records]
    told = compare(before, dataclasses.replace(after, records=tuple(records)), after_dir).summary
    assert (told.verdict, told.claim) == ("1 broken", claim)
    assert ("by chance with probability 0.50" in told.sure[0]) is (fails == 1)
    assert any("may be chance" in step.text for step in told.steps) is (fails == 1)


def test_each_ending_of_a_side_has_its_own_count_and_no_chance_is_zero(make_campaign):
    before, _ = make_campaign([(LONG, "pass", n) for n in range(10)])
    after, after_dir = make_campaign([(LONG, "crash" if n < 12 else "pass", n) for n in range(20)])
    report = compare(before, after, after_dir)

    sides = "PASS 10 of 10 before, CRASH (RuntimeError) 12 of 20, PASS 8 of 20 after"
    assert f"{sides} (so much comes by chance with probability less than 0.01)" in report.summary.sure[0]
    assert "| PASS (10 of 10), " in block(report, "cells")
    assert "| CRASH (RuntimeError) (12 of 20), PASS (8 of 20), " in block(report, "cells")


def test_one_program_with_nothing_varied_reads_as_a_report_of_that_program(make_campaign):
    text = "version: 1\nname: one\ndescription: python train.py\naxes:\n  n_layers: {type: ordered, values: [1]}\n"
    report = build(*make_campaign([({}, "hang", 0), ({}, "hang", 1), ({}, "pass", 2)], text=text))
    told = report.summary
    assert (told.kind, told.verdict, told.claim) == ("single", "HANG (deadlock)", "Reproduced")
    assert told.answer == "The program hangs (deadlock) in 2 of 3 runs."
    assert told.happened[0].startswith("Trial 1: rank 0 silent for 6.1 s")
    assert "combinations" not in block(report, "not_tested")


def test_of_two_failures_every_part_tells_of_the_first(make_campaign):
    text = "version: 1\nname: one\ndescription: python train.py\naxes:\n  n_layers: {type: ordered, values: [1]}\n"
    run, run_dir = make_campaign([({}, "pass", 0), ({}, "crash", 1), ({}, "hang", 2)], text=text)
    told = build(run, run_dir).summary
    assert told.happened[0].startswith("Trial 2: ")
    assert told.judged.startswith("CRASH")
    assert told.steps[0].text.startswith(f"Look at {told.place.text}; the traceback is in Evidence, trial 2.")


def test_the_work_grows_with_the_cells_and_not_with_their_pairs(make_campaign):
    """Calls, which a busy machine does not change: twice the cells may cost little more than twice as many."""
    calls = []
    for wide in (6, 12):
        text = (
            "version: 1\nname: many\ndescription: Many cells.\nbase: {train.steps: 8}\naxes:\n"
            f"  n_layers: {{type: ordered, range: [1, {wide}]}}\n"
            "  seq_len: {type: ordered, range: [1, 20], apply: {config: train.seq_len}}\nstrategy: full\n"
        )
        cells = [{"n_layers": i, "seq_len": j} for i in range(1, wide + 1) for j in range(1, 21)]
        found = make_campaign([(cell, "hang" if cell["n_layers"] > 5 else "pass", 0) for cell in cells], text=text)
        calls.append(calls_of(lambda made: html.render(build(*made), hide=str), found))
    assert calls[1] < 3 * calls[0]


def calls_of(work, *args) -> int:
    """How many functions ``work`` calls, those of C among them."""
    count = itertools.count()
    sys.setprofile(lambda *_: next(count))
    try:
        work(*args)
    finally:
        sys.setprofile(None)
    return next(count)


def test_a_pass_that_took_longer_than_the_slow_side_was_given_is_no_difference(make_campaign):
    run, run_dir = make_campaign([({}, "pass", 0), (LATE, "slow", 0)])
    assert "Cells that differ only in ckpt (1 of 1 pair) ended differently." in build(run, run_dir).summary.answer
    outcome = dataclasses.replace(run.records[0].outcome, duration_s=61.0)  # the slow side was ended after 60 s
    longer = dataclasses.replace(run, records=(dataclasses.replace(run.records[0], outcome=outcome), run.records[1]))
    told = build(longer, run_dir).summary.answer
    assert "ended differently" not in told
    assert "Not comparable, because one side was given less time than the other took: ckpt (1 pair)." in told


@pytest.mark.parametrize(("verdict", "says"), [("crash", True), ("pass", False)])
def test_where_every_cell_ended_as_the_matrix_expects_the_answer_says_so(make_campaign, verdict, says):
    ends = {(False, False): "pass", (False, True): "pass", (True, False): "pass", (True, True): "crash"}
    trials = [({"tied": t, "find_unused": u}, end) for (t, u), end in ends.items()]
    expects = f"expect:\n  - {{when: {{tied: 1, find_unused: 1}}, verdict: {verdict}}}\n"
    told = build(*make_campaign(trials, text=FLAGS + expects)).summary
    assert (told.verdict == "All 4 cells are as expected") is says


ALONE = """
version: 1
name: alone
description: "Does it finish: python train.py"
target: command
command: [python, train.py]
axes: {length: {type: ordered, values: [1], apply: {arg: --length}}}
include: [{}]
"""


def test_of_a_run_that_did_not_come_to_its_end_junit_has_an_error_though_its_other_cells_are_merely_skipped(
    make_campaign,
):
    run, run_dir = make_campaign([({}, "pass", 0)], text=ALONE)
    whole, cut = (replace(run, ended=why) for why in ("answered", "interrupted"))

    suites = [ET.fromstring(form(one, run_dir, "junit", hide=())).find("testsuite") for one in (whole, cut)]

    assert [suite.get("errors") for suite in suites] == ["0", "1"]
    assert suites[1].find("testcase/error").get("message") == "it did not come to its end: interrupted"


def test_junit_and_the_annotations_of_it_begin_each_failure_with_its_own_line(make_campaign):
    """The line of every failure but the one in the headline was left out."""
    crash = {"n_layers": 12, "ckpt": "reentrant"}
    run, run_dir = make_campaign([({}, "pass", 0), ({"n_layers": 12}, "hang", 1), (crash, "crash", 2)])
    text = form(run, run_dir, "junit", hide=())
    records = [record for record in run.records if record.verdict.kind is not Kind.PASS]
    lines = [place_of(Findings(run=run, run_dir=run_dir), record).text for record in records]
    assert lines[0] != lines[1]
    messages = [failure.get("message") for failure in ET.fromstring(text).iter("failure")]
    assert [message.partition(": expected")[0] for message in messages] == lines
    for line, annotation in zip(lines, annotations_of(text), strict=True):
        assert f"{line}: expected".replace(":", "%3A") in annotation


def test_junit_says_in_how_many_of_its_trials_a_program_failed(make_campaign):
    run, run_dir = make_campaign([({}, "pass", 0), ({}, "crash", 1), ({}, "crash", 2)], text=ALONE, answered=False)

    case = ET.fromstring(form(run, run_dir, "junit", hide=())).find("testsuite/testcase")

    assert case.find("failure").get("message").endswith("CRASH (RuntimeError), 2 of 3 trials")


@pytest.mark.parametrize(
    ("before", "after", "verdict", "tone", "answer"),
    [
        (["pass"] * 4, ["slow"] * 4, "1 slow now", "bad", "PASS before, SLOW after."),
        (["slow"] * 2, ["pass"] * 2, "1 no longer slow", "good", "SLOW before, PASS after."),
        (
            *(["pass", "crash"] * 2, ["crash"] * 4, "1 failing more often", "bad"),
            "PASS 2 of 4, CRASH (RuntimeError) 2 of 4 before, CRASH (RuntimeError) 4 of 4 after.",
        ),
        (
            *(["crash"] * 4, ["crash", "pass"] * 2, "1 failing less often", "good"),
            "CRASH (RuntimeError) 4 of 4 before, CRASH (RuntimeError) 2 of 4, PASS 2 of 4 after.",
        ),
        (
            *(["pass"] * 8 + ["crash"], ["crash"] * 8 + ["pass"], "1 failing more often", "bad"),
            "PASS 8 of 9, CRASH (RuntimeError) 1 of 9 before, CRASH (RuntimeError) 8 of 9, PASS 1 of 9 after.",
        ),
        (["crash"], ["hang"], "1 other failure", "unsure", "CRASH (RuntimeError) before, HANG (deadlock) after."),
        (
            *(["crash"] * 2, ["slow"] * 2, "1 inconclusive", "unsure"),
            "CRASH (RuntimeError) before, SLOW after, which says too little.",
        ),
        (["pass"], ["untold"], "1 inconclusive", "unsure", "PASS before, UNRESOLVED after, which says too little."),
        (
            *(["pass", "crash", "pass"], ["crash", "pass", "pass"], "Nothing changed", "unsure"),
            "No verdict changed in 1 cell that both runs tried.",
        ),
        (["slow"], ["slow"], "Nothing changed", "unsure", "No verdict changed in 1 cell that both runs tried."),
    ],
)
def test_a_comparison_says_what_became_of_a_cell(make_campaign, before, after, verdict, tone, answer):
    sides = [make_campaign([(LONG, kind, n) for n, kind in enumerate(kinds)]) for kinds in (before, after)]
    report = compare(sides[0][0], *sides[1])
    told = report.summary
    assert (told.verdict, told.tone) == (verdict, tone)
    assert told.answer.endswith(answer)
    assert "0 of" not in block(report, "cells")
    assert "0 of" not in "".join(told.sure)


@pytest.mark.parametrize(
    ("finding", "kind", "headline", "step"),
    [
        (MinimiseFinding.GOOD_FAILS, "crash", "The good corner fails: because", "Look at"),
        (
            MinimiseFinding.BAD_PASSES,
            "pass",
            "The bad corner passes: because",
            "Name a cell that fails with --bad-cell",
        ),
    ],
)
def test_where_no_cause_can_be_looked_for_no_corner_is_told_of_that_was_not_tried(
    make_campaign, finding, kind, headline, step
):
    run, run_dir = make_campaign([({}, kind, 0), ({}, kind, 1)])
    minimised = Minimised(finding=finding, because="because")
    run = dataclasses.replace(run, answer=dataclasses.replace(run.answer, minimised=minimised))
    told = build(run, run_dir).summary

    assert told.answer.startswith(headline)
    assert told.steps[0].text.startswith(step)
