"""A question of a matrix is answered in words, by the trials that tell, and not where none of them does."""

from __future__ import annotations

import dataclasses

import pytest

from harness.core.errors import SpecError
from harness.core.evidence import GRAPH_NODES
from harness.report.asked import answers, instead_of_slow, why_slow
from harness.report.findings import Findings
from harness.report.render import markdown
from harness.report.write import build
from harness.spec.matrix import parse_matrix

TEXT = """
version: 1
name: canned
description: Does a deep model hang in backward, and does the closure matter?
base: {{train.steps: 8}}
axes:
  n_layers: {{type: ordered, range: [1, 12], priority: 9}}
  ckpt: {{type: categorical, values: [none, reentrant], apply: {{config: train.checkpointing}}}}
asks:
  - {asks}
"""
EVER = "{ever: [hang], when: {n_layers: [12]}, phase: backward, yes: It hangs., no: It does not hang.}"
ALWAYS = "{always: [hang], when: {n_layers: [12]}, yes: Each hangs., no: Not each hangs.}"
MATTERS = "{matters: ckpt, yes: It matters., no: It makes no difference.}"
DEEP, LATE = {"n_layers": 12}, {"n_layers": 12, "ckpt": "reentrant"}


@pytest.fixture
def ask(make_campaign):
    def answer(asks, *trials):
        run, _ = make_campaign(list(trials), text=TEXT.format(asks=asks))
        (one,) = answers(Findings(run=run))
        return one

    return answer


def test_a_failure_that_was_seen_once_answers_yes_with_its_count(ask):
    one = ask(EVER, ({}, "pass", 0), (DEEP, "pass", 0), (DEEP, "hang", 1))
    assert (one.word, one.says) == ("Yes", "It hangs")
    assert one.because == "1 of 2 trials did, in 1 of 1 cell."
    assert one.trials == (3,)


def test_no_is_said_of_those_that_got_through_the_phase_and_the_others_are_named(ask):
    one = ask(EVER, (DEEP, "pass", 0), (DEEP, "pass", 1), (LATE, "slow", 0))
    assert (one.word, one.says) == ("No", "It does not hang")
    assert one.because.startswith(
        "No HANG in the 2 trials of 1 cell that got through backward. 1 cell did not get there"
    )
    assert "1 trial ran out of time" in one.because


def test_where_nothing_got_there_nothing_is_answered(ask):
    one = ask(EVER, ({}, "pass", 0), (DEEP, "slow", 0))
    assert (one.word, one.says) == ("Not known", "")


def test_another_failure_than_the_one_asked_for_is_no_yes(ask):
    assert ask(EVER, (DEEP, "crash", 0), (DEEP, "pass", 1)).word == "No"


@pytest.mark.parametrize(("second", "word"), [("hang", "Yes"), ("pass", "No")])
def test_always_needs_every_cell(second, word, ask):
    assert ask(ALWAYS, (DEEP, "hang", 0), (LATE, second, 0)).word == word


def test_an_axis_matters_by_pairs_that_differ_in_it_alone(ask):
    assert ask(MATTERS, (DEEP, "pass", 0), (LATE, "hang", 0)).word == "Yes"
    alike = ask(MATTERS, (DEEP, "pass", 0), (LATE, "pass", 0))
    assert (alike.word, alike.trials) == ("No", (1, 2))
    assert ask(MATTERS, ({}, "pass", 0), (LATE, "hang", 0)).word == "Not known"


def test_pairs_that_both_ran_out_of_time_are_told_apart_from_pairs_that_passed(ask):
    one = ask(MATTERS, (DEEP, "slow", 0), (LATE, "slow", 0), ({}, "pass", 0), ({"ckpt": "reentrant"}, "pass", 0))
    assert (
        one.because
        == "2 of 2 pairs of cells that differ only in ckpt ended alike, 1 of them out of time on both sides."
    )


def test_the_answer_is_the_first_thing_on_the_page(make_campaign):
    run, run_dir = make_campaign([(DEEP, "pass", 0)], text=TEXT.format(asks=EVER))
    page = markdown.render(build(run, run_dir)).splitlines()
    assert page[2].startswith("**No. It does not hang.** No HANG in the 1 trial of 1 cell that got through backward.")


def test_a_slow_cell_is_explained_by_its_graph_and_by_what_passes_instead(make_campaign):
    run, _ = make_campaign([(DEEP, "slow", 0), (LATE, "pass", 0)], text=TEXT.format(asks=MATTERS))

    def building(record, nodes):
        measured = dataclasses.replace(record.measurement, facts=((GRAPH_NODES, nodes),))
        return dataclasses.replace(record, measurement=measured)

    slow, passed = run.records
    run = dataclasses.replace(run, records=(building(slow, 943996.0), building(passed, 2257.0)))
    assert "had built 943,996 autograd nodes when its time ran out; with ckpt=reentrant" in why_slow(Findings(run=run))
    assert "2,257 in all" in why_slow(Findings(run=run))
    assert instead_of_slow(Findings(run=run)).startswith(
        "Use ckpt=reentrant: with nothing else changed it passed 1 of 1"
    )
    few = dataclasses.replace(run, records=(building(slow, 3000.0), building(passed, 2257.0)))
    assert why_slow(Findings(run=few)) == ""


@pytest.mark.parametrize(
    ("asks", "says"),
    [
        ("{yes: a, no: b}", "one of ever, always, matters"),
        ("{matters: ckpt, ever: [], yes: a, no: b}", "one of ever, always, matters"),
        ("{matters: depth, yes: a, no: b}", "unknown axis 'depth'"),
        ("{ever: [hangs], yes: a, no: b}", "unknown verdict 'hangs'"),
    ],
)
def test_a_question_that_cannot_be_asked_says_why_with_its_line(asks, says):
    with pytest.raises(SpecError, match=says) as error:
        parse_matrix(TEXT.format(asks=asks), name="canned.yaml")
    assert "canned.yaml:" in str(error.value)
