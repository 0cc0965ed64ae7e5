"""``--resume`` takes up a run of the same question, says which, and touches no other one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli.main import main
from harness.clock import WallClock
from harness.core.campaign import CampaignAnswer
from harness.machine import code_fingerprint, describe
from harness.solo import foreign_question
from harness.store import layout
from harness.store.run_store import RunStore, read_run

pytestmark = pytest.mark.usefixtures("_without_figures")

ASK = ("matrix", "run", "--axis", "n=1,2,3", "--max-trials", "1", "--", sys.executable, "-c", "pass", "{n}")


def nsa_harness(*argv: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in argv], prog_name="nsa-harness")


@pytest.fixture
def asked(tmp_path, monkeypatch) -> Path:
    """A run that has spent what it may after the first of three trials."""
    monkeypatch.chdir(tmp_path)
    assert nsa_harness(*ASK).exit_code == 3
    return next((tmp_path / "runs").iterdir())


@pytest.fixture
def watched(asked: Path) -> Path:
    """The run of a watch that was begun after it in the same folder."""
    with RunStore.create(
        asked.parent,
        spec=foreign_question(name="watch", question="What does process 4242 do?"),
        machine=describe(),
        code=code_fingerprint(),
        argv=("nsa-harness", "watch", "4242"),
        clock=WallClock(),
    ) as store:
        store.add_end(why="answered", seconds=1.0, answer=CampaignAnswer())
    return store.run_dir


@pytest.mark.parametrize("is_ended", [True, False])
def test_the_matrix_is_gone_on_with_and_the_watch_that_came_later_is_left_alone(asked, watched, is_ended):
    if not is_ended:
        path = layout.journal(watched)
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    before = layout.journal(watched).read_bytes()

    done = nsa_harness("matrix", "run", "--resume", "--max-trials", "9")

    assert done.exit_code == 0, done.output
    assert f"going on with {asked.name}, the last run of `nsa-harness matrix run`" in done.stderr
    assert len(read_run(asked).records) == 3
    assert layout.journal(watched).read_bytes() == before


def test_a_watch_that_is_named_is_refused_before_anything_is_written(asked, watched):
    before = layout.journal(watched).read_bytes()

    done = nsa_harness("matrix", "run", "--resume", watched)

    assert done.exit_code == 2
    assert "was begun by `nsa-harness watch 4242`, which cannot be gone on with" in " ".join(done.stderr.split())
    assert layout.journal(watched).read_bytes() == before


def test_where_everything_has_ended_or_asks_something_else_that_is_said(asked, watched):
    done = nsa_harness("bisect", "--resume")

    assert done.exit_code == 6
    text = " ".join(done.stderr.split())
    assert "/runs that was begun by `nsa-harness bisect` is unfinished" in text
    assert f"{watched.name}: answered, begun by `nsa-harness watch 4242`" in text
    assert f"{asked.name}: budget used up" in text
    assert "--resume RUN" in text
