"""A real Slurm of two nodes in namespaces of their own runs trials; where there is none, it is said what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.testing import cluster

PROGRAM = """
import os, sys
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "on", os.uname().nodename, flush=True)
sys.exit(int(sys.argv[1]) if os.environ["RANK"] == "1" else 0)
"""


@pytest.fixture(scope="module")
def slurm():
    if why := cluster.refusal():
        pytest.skip(f"no Slurm can be started here: {why}")
    with cluster.slurm() as two:
        yield {**os.environ, **two.environment, "PATH": f"{Path(sys.executable).parent}:{two.environment['PATH']}"}


def run(slurm, tmp_path, *words):
    (tmp_path / "job.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "harness", "run", "--json", "--runs", tmp_path / "runs", *words]
    done = subprocess.run(command, env=slurm, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout, done.stderr
    (trial,) = json.loads(done.stdout)["trials"]
    return trial["verdict"]


def test_a_program_runs_once_on_each_of_two_nodes(slurm, tmp_path):
    verdict = run(slurm, tmp_path, "--on", "slurm", "--nodes", "2", "--", sys.executable, "job.py", "0")

    assert verdict["kind"] == "PASS"
    said = [path.read_text() for path in tmp_path.glob("runs/*/trials/*/**/stdout.txt")]
    assert sorted(said) == ["rank 0 of 2 on n1\n", "rank 1 of 2 on n2\n"]


def test_a_rank_that_fails_on_the_other_node_is_the_trials_crash(slurm, tmp_path):
    verdict = run(slurm, tmp_path, "--on", "slurm", "--nodes", "2", "--", sys.executable, "job.py", "3")

    assert verdict["kind"] == "CRASH"
    assert "3" in verdict["because"]


def test_nothing_is_left_of_it(tmp_path):
    if why := cluster.refusal():
        pytest.skip(f"no Slurm can be started here: {why}")
    with cluster.slurm(names=("n1",)) as one:
        pids = [daemon.pid for daemon in one.daemons] + [unshare.pid for unshare in one.inits.values()]
        bridge = one.bridge
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert subprocess.run(["ip", "link", "show", bridge], capture_output=True, check=False).returncode != 0
