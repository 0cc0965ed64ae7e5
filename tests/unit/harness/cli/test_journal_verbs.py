"""The journal's verbs, on the run directory of a search whose trials end as scripted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fake_clock import FakeClock
from harness.cli.main import main
from harness.core.campaign import CampaignSpec, Override, Task
from harness.core.evidence import Measurement
from harness.core.matrix import Matrix
from harness.core.outcome import Ending, Exit, Outcome
from harness.core.point import Point
from harness.core.record import Machine, TrialRecord
from harness.core.space import Space
from harness.core.spec import Effort
from harness.core.verdict import Answer, Confidence, Kind, Verdict
from harness.plan.cells import CellPlanner
from harness.report.bundle import bundle
from harness.report.hide import Hider
from harness.search.strategies import strategy_of
from harness.solo import foreign_question
from harness.spec.inline import inline_matrix
from harness.store.history import History
from harness.store.run_store import RunStore
from harness.targets.nsa import NsaTarget

SPACE = inline_matrix(["n_layers=1..4", "tied_head=false,true"]).space
SPEC = CampaignSpec(
    question="Which settings does it need?",
    task=Task.MINIMISE,
    matrix=Matrix(name="m", space=SPACE, effort=Effort(certify=2)),
)
MACHINE = Machine(python="3", torch="2", platform="Linux", kernel="6", cpu="c", cores=2, memory_bytes=1)


def record(store: RunStore, planner: CellPlanner, request) -> TrialRecord:
    """One trial as the loop would leave it: it hangs from three layers on."""
    hangs = request.cell.get("n_layers") >= 3
    trial = planner.trial(request)
    store.add_decision(request)
    store.add_start(trial)
    done = TrialRecord(
        trial=trial,
        outcome=Outcome(ending=Ending.EXITED, exit=Exit(code=0), duration_s=10.0 if hangs else 1.0),
        verdict=Verdict(
            kind=Kind.HANG if hangs else Kind.PASS,
            cause="deadlock" if hangs else None,
            rule="scripted",
            because="as scripted",
            cites=(),
            confidence=Confidence.PROOF,
        ),
        answer=Answer.BAD if hangs else Answer.GOOD,
        measurement=Measurement(),
        started_at="2026-01-01T00:00:00Z",
    )
    store.add_record(done)
    return done


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Four trials of a search that is not over."""
    with RunStore.create(
        tmp_path, spec=SPEC, machine=MACHINE, code="c", argv=("nsa-harness", "minimise"), clock=FakeClock()
    ) as store:
        search = strategy_of(SPEC)
        planner = CellPlanner(SPEC, target=NsaTarget(python=""), code="c", machine="m")
        for _ in range(4):
            request = search.ask()
            assert request is not None
            done = record(store, planner, request)
            search.tell(cell=request.cell, answer=done.answer, seconds=done.outcome.duration_s)
    return tmp_path


def verb(runs: Path, *argv: str, check: int = 0) -> Result:
    done = CliRunner().invoke(main, [*argv, "--runs", str(runs)])
    assert done.exit_code == check, done.output
    return done


def facts(runs: Path):
    (path,) = runs.glob("*/journal.jsonl")
    return History.read(path.parent).facts()


def journal(runs: Path) -> Path:
    (path,) = runs.glob("*/journal.jsonl")
    return path


def test_status_says_what_was_seen_and_what_comes_next(runs: Path):
    text = verb(runs, "status").output
    assert "trials: 4 (" in text
    assert "HANG (deadlock)" in text
    assert "next: " in text
    assert "left: about" in text


def test_log_has_a_line_for_every_event(runs: Path):
    lines = verb(runs, "log").output.splitlines()
    assert len(lines) == len(journal(runs).read_text().splitlines())
    assert sum(" decision " in line for line in lines) == 4
    assert any("n_layers=4,tied_head=true  HANG (deadlock), bad, 10.0 s" in line for line in lines)


def test_replay_finds_every_decision_the_same_until_the_journal_is_edited(runs: Path):
    assert "4 of 4 decisions are the same" in verb(runs, "replay").output

    path = journal(runs)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    second = [row for row in rows if row["event"] == "record"][1]
    second["data"]["record"]["answer"] = "good"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "lacks its checksum" in verb(runs, "fsck", check=1).output
    verb(runs, "fsck", "--accept")
    edited = verb(runs, "replay", check=1).output
    assert "now it would ask" in edited


def test_undo_takes_back_and_the_search_asks_that_again(runs: Path):
    before = verb(runs, "status").output
    last = facts(runs)[-1]
    assert "took back 1 of 4" in verb(runs, "undo").output
    assert len(facts(runs)) == 3
    after = verb(runs, "status").output
    assert f"next: {SPACE.name_of(last.trial.point)}" in after
    assert before != after
    assert "4 of 4 decisions are the same" in verb(runs, "replay").output
    verb(runs, "undo", "9")
    verb(runs, "undo", check=5)


def test_answers_of_a_run_of_one_program_are_not_asked_again(tmp_path: Path):
    alone = CampaignSpec(
        question="?", task=Task.CELLS, matrix=Matrix(name="run", space=Space(factors=())), cells=(Point(),)
    )
    with RunStore.create(
        tmp_path, spec=alone, machine=MACHINE, code="c", argv=("nsa-harness", "run"), clock=FakeClock()
    ) as store:
        store.add_override(Override(cell=Point(), answer=Answer.GOOD, by="a user", why="x"))
    output = verb(tmp_path, "undo").output
    assert output == "took back 1 of 1 answers; a run of one program is not continued: run it again\n"


def test_what_was_seen_of_a_watched_job_is_not_taken_back(tmp_path: Path):
    with RunStore.create(
        tmp_path,
        spec=foreign_question(name="watch", question="What does process 7 do?"),
        machine=MACHINE,
        code="c",
        argv=("nsa-harness", "watch", "7"),
        clock=FakeClock(),
    ) as store:
        store.add_override(Override(cell=Point(), answer=Answer.GOOD, by="a user", why="x"))
    before = journal(tmp_path).read_bytes()
    assert "a job that was only watched, which cannot be asked again" in verb(tmp_path, "undo", check=2).output
    assert journal(tmp_path).read_bytes() == before


def test_a_bundle_is_checked_by_the_name_that_was_typed(runs: Path, tmp_path: Path):
    """Not by that of the folder in which its evidence was unpacked, which is gone."""
    folder = tmp_path / "passed_on"
    bundle(journal(runs).parent, folder, hider=Hider())
    assert f"{folder}: everything is as it was written" in verb(runs, "fsck", str(folder)).output


def test_status_after_an_undo_that_leaves_nothing_to_ask_says_how_the_answer_is_written(
    runs: Path, monkeypatch: pytest.MonkeyPatch
):
    verb(runs, "undo")
    monkeypatch.setattr("harness.search.minimise.Minimise.ask", lambda self: None)
    text = verb(runs, "status").output
    assert "state: not finished" in text
    assert "next: nothing more is asked; --resume writes down what the answers show now" in text


@pytest.mark.parametrize("name", ["/proc/x.json", "/dev/full"])
def test_a_report_that_cannot_be_written_where_it_was_asked_for_names_that_option(runs: Path, name: str):
    text = verb(runs, "report", "--format", "json", "-o", name, check=6).output
    assert "Name another file with -o" in text
    assert "--resume" not in text


def test_mark_and_skip_count_as_answers_with_their_author(runs: Path):
    verb(runs, "mark", "n_layers=2", "pass", "--why", "seen yesterday")
    verb(runs, "skip", "n_layers=3")
    said = [fact for fact in facts(runs) if isinstance(fact, Override)]
    assert [(fact.answer, fact.by) for fact in said] == [(Answer.GOOD, "a user"), (Answer.UNRESOLVED, "a user")]
    assert "said: n_layers=2: good, by a user: seen yesterday" in verb(runs, "status").output
    assert "nearest" not in verb(runs, "mark", "n_layers=7", "pass", check=2).output


def test_graph_has_a_row_for_each_cell_and_dot_an_edge_for_each_minimal_pair(runs: Path):
    rows = verb(runs, "graph").output
    assert "X  HANG (deadlock)" in rows
    assert ".  PASS" in rows
    dot = verb(runs, "graph", "--dot").output
    assert dot.startswith("graph cells {")
    assert '[label="n_layers"]' in dot or '[label="tied_head"]' in dot
