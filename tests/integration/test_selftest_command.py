"""The self-test and re-judging, as commands."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.main import main
from harness.clock import WallClock
from harness.launch import procs
from harness.selftest import busy_cores
from harness.store.cases import read_cases


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-test of three specimens, two at a time."""
    folder = tmp_path_factory.mktemp("kept")
    done = CliRunner().invoke(main, ["selftest", "clean", "crash", "exit-early", "--jobs", "2", "--keep", str(folder)])
    assert done.exit_code == 0, done.output
    assert "limits are learned from 3 healthy runs: trainer 1 of 1" in done.output
    assert "3 of 3 right in 1 round, 2 at a time; no process left behind" in done.output
    return folder


def test_what_a_self_test_kept_is_judged_again_without_running_anything(kept: Path):
    done = CliRunner().invoke(main, ["classify", str(kept)])
    assert done.exit_code == 0, done.output
    assert "crash-1  CRASH (ValueError) in forward, rank 0  same" in done.output
    assert "6 judged again, 0 differ" in done.output  # three healthy runs came first


def test_a_verdict_that_is_another_one_now_is_shown_with_both_and_the_reason(kept: Path, tmp_path: Path):
    judged = next(found for found in read_cases(kept) if found.name == "crash-1")
    (file,) = kept.rglob("crash-1/case.json")
    data = json.loads(file.read_text())
    data["verdict"]["cause"] = "TypeError"
    (tmp_path / "crash.json.gz").write_bytes(gzip.compress(json.dumps(data).encode()))
    done = CliRunner().invoke(main, ["classify", str(tmp_path), "--differing"])
    assert done.exit_code == 1
    assert "crash  CRASH (TypeError) in forward, rank 0  now CRASH (ValueError) in forward, rank 0" in done.output
    assert judged.verdict.because in done.output


def test_a_case_that_cannot_be_read_names_its_file(tmp_path: Path):
    (tmp_path / "torn.json.gz").write_bytes(gzip.compress(b'{"case": {}}')[:-4])
    done = CliRunner().invoke(main, ["classify", str(tmp_path)])
    assert done.exit_code not in (0, 1)
    assert "torn.json.gz" in done.output


def test_busy_cores_are_busy_and_gone_afterwards():
    def hogs() -> list[int]:
        """This process's descendants that do nothing but compute."""
        found = []
        for process in procs.descendants(os.getpid(), procs.everything()):
            with suppress(OSError):  # gone since it was listed
                if b"sum(range(100_000))" in Path(f"/proc/{process.pid}/cmdline").read_bytes():
                    found.append(process.pid)
        return found

    with busy_cores(2):
        wait_until(lambda: len(hogs()) == 2)
    assert not hogs()


def wait_until(condition: Callable[[], bool]) -> None:
    """Look again and again, for a minute at most."""
    clock = WallClock()
    until_s = clock.now() + 60
    while not condition():
        assert clock.now() < until_s
        clock.sleep(0.02)
