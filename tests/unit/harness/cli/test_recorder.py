"""``nsa-harness recorder``: dumps of anybody's job, and the same answer as torch's own analyser on the same dumps."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.cli.main import main
from harness.cli.recorder import rank_of

RECORDED = Path(__file__).parents[3] / "data" / "evidence" / "h200"
BOTH = ("backward_lock", "straggler", "spin_kernel")
"""Recordings that have the dumps of both ranks, as NCCL wrote them."""


def recorder(folder: Path, *argv: str) -> Result:
    return CliRunner().invoke(main, ["recorder", str(folder), *argv], prog_name="nsa-harness")


def torchs_own(folder: Path) -> str:
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder), "-p", "rank_"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.fixture
def dumps(tmp_path):
    """Puts a recording's dumps into a folder, as changed by ``edit``."""

    def put(name: str, edit: dict[int, Any] | None = None) -> Path:
        for path in (RECORDED / name).glob("flight_recorder_*"):
            rank = int(path.name[-1])
            shutil.copy(path, tmp_path / f"rank_{rank}")
            if edit and rank in edit:
                record = pickle.loads(path.read_bytes())
                edit[rank](record)
                (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(record, protocol=2))
        return tmp_path

    return put


def other_call(record: dict) -> None:
    record["entries"][-1]["profiling_name"] = "nccl:all_to_all"


def other_size(record: dict) -> None:
    record["entries"][-1]["input_sizes"] = record["entries"][-1]["output_sizes"] = [[11]]


@pytest.mark.parametrize("name", [BOTH[0], *(pytest.param(name, marks=pytest.mark.long) for name in BOTH[1:])])
def test_a_missing_rank_is_the_one_that_torchs_own_analyser_names(dumps, name):
    folder = dumps(name)
    theirs = torchs_own(folder)
    missing = [int(n) for found in re.findall(r"missing ranks: \{(.*?)\}", theirs) for n in found.split(",")]

    done = recorder(folder, "--json")

    (ours,) = json.loads(done.stdout)["partings"]
    assert ours["at_fault"] == missing
    assert done.exit_code == (1 if missing else 3)
    assert all(f"collective: nccl:{op}" in theirs for op in re.findall(r"called (\w+) of", ours["said"]) if missing)


@pytest.mark.parametrize(
    ("edit", "ours", "torchs"),
    [
        (other_call, "other operation", "COLLECTIVE_TYPE_MISMATCH"),
        pytest.param(other_size, "other shape", "SIZE_OR_SYNTAX_MISMATCH", marks=pytest.mark.long),
    ],
)
def test_different_calls_are_seen_where_torchs_own_analyser_sees_them(dumps, edit, ours, torchs):
    folder = dumps("spin_kernel", {1: edit})

    done = recorder(folder, "--json")

    assert json.loads(done.stdout)["partings"][0]["kind"] == ours
    assert done.exit_code == 1
    assert torchs in torchs_own(folder)


def test_a_rank_without_a_dump_is_not_blamed(dumps):
    folder = dumps("backward_lock")
    (folder / "rank_1").unlink()

    done = recorder(folder)

    assert done.exit_code == 3
    assert "there is no dump of rank 1, so whether it was called there is not known" in done.stdout
    assert "had not called it" not in done.stdout


def test_what_is_no_dump_is_named_and_never_run(dumps):
    folder = dumps("straggler")
    (folder / "rank_7").write_bytes(pickle.dumps(Path("x")))
    (folder / "notes 3.json").write_text('{"a": 1}')
    (folder / "README").write_text("hello")

    done = recorder(folder)

    assert done.exit_code == 1
    assert "not read: rank_7: it holds more than plain data" in done.stderr
    assert "not read: notes 3.json: it holds no operation" in done.stderr
    assert "not read: README: its name has no rank" in done.stderr


def test_a_folder_without_dumps_is_wrong_use(tmp_path):
    done = recorder(tmp_path)

    assert done.exit_code == 2
    assert "TORCH_FR_BUFFER_SIZE" in done.stderr


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_3", 3),
        ("node7-rank12.json", 12),
        ("flight_recorder_0", 0),
        ("host10_5.pkl", 5),
        ("trace", None),
    ],
)
def test_a_files_name_tells_its_rank(name, rank):
    assert rank_of(name) == rank
