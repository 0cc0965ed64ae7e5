"""The list of runs reads journals as plain JSON; it must say what reading them in full says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.boundary import Boundary, Finding
from harness.core.campaign import CampaignAnswer, Override
from harness.core.point import Point
from harness.core.verdict import Answer, Kind
from harness.solo import foreign_question
from harness.store import layout
from harness.store.archive import unpacked
from harness.store.run_store import RunStore, find_latest, read_run
from harness.store.shelf import list_runs, summary

FOUND = Boundary(axis="n", finding=Finding.NO_FAILURE)
BUNDLES = sorted(path for path in Path(__file__).parents[4].joinpath("reports").iterdir() if path.is_dir())


def in_full(folder: Path) -> tuple[object, ...]:
    run = read_run(folder)
    found = run.boundary.finding.value if run.boundary else run.answer.because if run.answer else ""
    return run.spec.question, run.started_at, run.ended, found, len(run.records)


def in_the_list(folder: Path) -> tuple[object, ...]:
    row = summary(folder)
    assert not row.problem
    return row.question, row.started_at, row.ended, row.finding, row.trials


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.name)
def test_a_kept_run_has_the_row_that_reading_it_in_full_gives(bundle):
    folder = unpacked(bundle)
    assert in_the_list(folder) == in_full(folder)


def test_what_was_taken_back_said_and_ended_counts_as_in_the_whole_reading(create, make_record):
    with create() as store:
        steps = [
            lambda: store.add_record(make_record(1)),
            lambda: store.add_record(make_record(2)),
            lambda: store.add_override(
                Override(cell=Point.of({"n_layers": 3}), answer=Answer.BAD, by="me", why="seen")
            ),
            lambda: store.add_undo(2),
            lambda: store.add_end(why="done", seconds=1.0, answer=CampaignAnswer(boundary=FOUND)),
            lambda: store.add_undo(99),
            lambda: store.add_record(make_record(4)),
            lambda: store.add_start(make_record(5).trial),
        ]
        seen = []
        for step in steps:
            step()
            seen.append(in_the_list(store.run_dir))
            assert seen[-1] == in_full(store.run_dir)
    assert [row[-1] for row in seen] == [1, 2, 2, 1, 1, 0, 1, 1]
    assert [row[2] for row in seen].count("done") == 1


@pytest.mark.parametrize(
    ("ended", "kinds", "brief"),
    [
        ("answered", [Kind.HANG], "HANG"),
        ("answered", [Kind.HANG, Kind.PASS, Kind.PASS], "2 PASS, 1 HANG"),
        ("interrupted", [Kind.HANG], "interrupted"),
    ],
)
def test_one_program_without_a_report_shows_its_verdicts(ended, kinds, brief, create, make_record):
    with create(spec=foreign_question(name="watch", question="What?")) as store:
        for number, kind in enumerate(kinds):
            record = make_record(number + 1)
            store.add_record(replace(record, verdict=replace(record.verdict, kind=kind, cause="")))
        store.add_end(why=ended, seconds=1.0, answer=CampaignAnswer())
    assert summary(store.run_dir).ending == brief


def test_a_run_of_which_only_the_whole_reading_finds_what_is_wrong_is_not_the_latest(create, make_record, clock):
    with create() as old:
        pass
    clock.sleep(60)
    with create() as new:
        new._appender.append(event="record", wall=clock.wall(), data={"record": {"trial": {"key": "k"}, "x": 1}})
    assert [row.directory for row in list_runs(new.run_dir.parent)] == [new.run_dir, old.run_dir]
    assert find_latest(new.run_dir.parent) == old.run_dir


def test_a_run_that_was_left_shows_the_row_that_was_kept_and_its_journal_is_not_read(create, make_record, monkeypatch):
    with create() as store:
        store.add_record(make_record(1))
        store.add_end(why="done", seconds=1.0, answer=CampaignAnswer(boundary=FOUND))
        monkeypatch.setattr("harness.store.shelf._stored_row", lambda _: None)
        read = summary(store.run_dir)
    monkeypatch.undo()
    monkeypatch.setattr("harness.store.journal.read", lambda _: pytest.fail("it was read"))
    assert summary(store.run_dir) == read
    assert read.trials == 1


def test_a_run_is_read_again_where_its_files_are_not_those_of_its_row(create, make_record, clock):
    with create() as store:
        store.add_record(make_record(1))
    path = layout.journal(store.run_dir)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"record"', b'"recorb"', 1))
    assert "its checksum differs" in summary(store.run_dir).problem
    path.write_bytes(whole[:-40])
    assert in_the_list(store.run_dir)[-1] == 0  # a torn last line does not count
    path.write_bytes(whole)
    with RunStore.open(store.run_dir, clock=clock) as again:
        again.add_record(make_record(2))
        assert in_the_list(store.run_dir) == in_full(store.run_dir)
        assert in_the_list(store.run_dir)[-1] == 2
    assert in_the_list(store.run_dir) == in_full(store.run_dir)


@pytest.mark.parametrize("text", ["", "[]", '{"made_from": [], "row": {}}', '{"made_from": 1, "row": {"trials": "x"}}'])
def test_a_row_that_is_none_is_not_believed(create, make_record, text):
    with create() as store:
        store.add_record(make_record(1))
    layout.row(store.run_dir).write_text(text)
    assert in_the_list(store.run_dir) == in_full(store.run_dir)


@pytest.mark.parametrize("text", ["[]", "{}", '{"question": 1}', "null"])
def test_files_that_are_not_those_of_a_run_are_a_problem_and_no_end(create, text):
    with create() as store:
        pass
    layout.spec(store.run_dir).write_text(text)
    assert summary(store.run_dir).problem
