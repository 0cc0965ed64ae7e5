"""A real Slurm and a real Ray of two nodes, in namespaces of their own, run trials; or it is said why not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cluster import ENGINES
from harness.testing import cluster
from harness.testing.engines import CHECKS, CLUSTER_CHECKS
from harness.testing.executors import await_

ROOT = Path(__file__).parents[2]
COOKBOOK = ROOT / "docs" / "cookbook.md"
PROLOG = ROOT / "examples" / "slurm_task_prolog.sh"

PROGRAM = """
import os, sys
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "on", os.uname().nodename, flush=True)
sys.exit(int(sys.argv[1]) if os.environ["RANK"] == "1" else 0)
"""


DESYNC = """
import os, time
import torch, torch.distributed as dist
env = os.environ
rank, world = int(env["SLURM_PROCID"]), int(env["SLURM_NTASKS"])
env["MASTER_ADDR"], env["MASTER_PORT"] = "{first}", "29555"
dist.init_process_group("gloo", rank=rank, world_size=world)
one = torch.ones(4)
dist.all_reduce(one)
print("rank", rank, "is there", flush=True)
if rank == 3:
    dist.broadcast(one, src=3)
    dist.barrier()
else:
    dist.all_reduce(one)
time.sleep(600)
"""


WAITS = """
import sys, threading, time
lock = threading.Lock()
for step in range(6):
    print("step", step, flush=True)
    time.sleep(0.5)
    if step == 3 and int(sys.argv[1]) >= 3:
        lock.acquire()
        lock.acquire()
"""


@pytest.fixture(scope="module", params=sorted(cluster.CLUSTERS))
def engine(request):
    """The name of an engine whose cluster is up, the environment that finds it, and the cluster."""
    if why := cluster.refusal(request.param):
        pytest.skip(f"no {request.param} can be started here: {why}")
    with cluster.CLUSTERS[request.param]() as two:
        path = f"{Path(sys.executable).parent}:{two.environment.get('PATH', os.environ['PATH'])}"
        yield request.param, {**os.environ, **two.environment, "PATH": path}, two
    assert [init.pid for init in two.inits.values() if Path(f"/proc/{init.pid}").exists()] == []
    assert [daemon.pid for daemon in two.daemons if Path(f"/proc/{daemon.pid}").exists()] == []
    assert subprocess.run(["ip", "link", "show", two.bridge], capture_output=True, check=False).returncode != 0


@pytest.fixture
def reached(engine, monkeypatch):
    """The engine itself, in this process."""
    name, env, _ = engine
    for key, text in env.items():
        monkeypatch.setenv(key, text)
    return ENGINES.load(name)()


def run(engine, tmp_path, code):
    name, env, _ = engine
    (tmp_path / "job.py").write_text(PROGRAM)
    words = ["--on", name, "--nodes", "2", "--", sys.executable, "job.py", code]
    command = [sys.executable, "-m", "harness", "run", "--json", "--runs", tmp_path / "runs", *words]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout, done.stderr
    (trial,) = json.loads(done.stdout)["trials"]
    return trial["verdict"]


def test_a_program_runs_once_on_each_of_two_nodes(engine, tmp_path):
    verdict = run(engine, tmp_path, "0")

    assert verdict["kind"] == "PASS"
    said = [path.read_text().split() for path in tmp_path.glob("runs/*/trials/*/**/stdout.txt")]
    assert sorted(words[:4] for words in said) == [["rank", "0", "of", "2"], ["rank", "1", "of", "2"]]
    assert {words[-1] for words in said} == {"n1", "n2"}


def test_a_rank_that_fails_on_the_other_node_is_the_trials_crash(engine, tmp_path):
    verdict = run(engine, tmp_path, "3")

    assert verdict["kind"] == "CRASH"
    assert "3" in verdict["because"]


def blocks(name):
    """The blocks of the cookbook that are held here, of one engine."""
    (section,) = re.findall(rf"(?ms)^## {name}\n(.*?)^## ", COOKBOOK.read_text(), re.IGNORECASE)
    return re.findall(r"(?ms)^<!-- held by: tests/integration/test_clusters.py -->\n```bash\n(.*?)^```$", section)


@pytest.mark.long
def test_a_search_gives_the_answer_of_one_machine_and_sooner_on_two_nodes(engine, tmp_path):
    """Of a program that waits most of the time: both nodes here are the same cores."""
    name, env, _ = engine
    (tmp_path / "waits.py").write_text(WAITS)

    def asked(*on):
        words = ["--axis", "n_layers=1..4", "--certify", "8", "--fresh", "--json", *on]
        command = [sys.executable, "-m", "harness", "bisect", *words, "--", sys.executable, "waits.py", "{n_layers}"]
        began_s = time.monotonic()
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)["answer"], time.monotonic() - began_s

    (here, _), (one, one_s), (two, two_s) = (
        asked(*on) for on in ([], ["--on", name, "--nodes", "1"], ["--on", name, "--nodes", "2"])
    )
    assert "n_layers=3 hangs (deadlock) in output, 2 of 2 trials; n_layers=2 passes" in here
    assert here == one == two
    assert two_s < one_s


@pytest.mark.long
def test_every_block_of_the_cookbook_runs(engine, tmp_path):
    name, env, _ = engine
    (tmp_path / "train.py").write_text("for step in range(3): print('step', step, flush=True)\n")
    assert blocks(name)
    for block in blocks(name):
        done = subprocess.run(["bash", "-e", "-c", block], env=env, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"


@pytest.mark.long
def test_a_guard_started_by_a_prolog_tells_of_a_hang_and_ends_with_the_job(engine, tmp_path):
    name, env, _ = engine
    if name != "slurm":
        pytest.skip("a prolog is Slurm's")
    (tmp_path / "hang.py").write_text("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\n")
    job = subprocess.Popen(["srun", "-N1", "--task-prolog", PROLOG, "python", "hang.py"], env=env, cwd=tmp_path)
    try:
        await_(lambda: any("HANG" in p.read_text() for p in tmp_path.glob("*/*/guard.jsonl")), "no hang", limit_s=400)
    finally:
        job.terminate()
        job.wait()
    (log,) = tmp_path.glob("*/*/guard.log")
    await_(lambda: "no longer guarded" in log.read_text(), "the guard outlived the job")


@pytest.fixture
def hung(engine, tmp_path):
    """The number of a job of four ranks on two nodes, of which rank 3 calls what the others do not."""
    name, env, two = engine
    if name != "slurm":
        pytest.skip("what runs in a Ray has no number that its nodes know")
    (tmp_path / "desync.py").write_text(DESYNC.replace("{first}", f"10.{two.net}.0.1"))
    command = ["srun", "-N2", "-n4", "--ntasks-per-node=2", sys.executable, "desync.py"]
    with (tmp_path / "out").open("w") as out:
        job = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=out)
    try:
        await_(lambda: (tmp_path / "out").read_text().count("is there") == 4, "four ranks", limit_s=200)
        yield subprocess.check_output(["squeue", "-h", "-o", "%i"], env=env, text=True).strip()
    finally:
        job.terminate()
        job.wait()


@pytest.mark.long
def test_a_job_of_slurm_is_seen_as_one_case_from_all_of_its_nodes(engine, hung, tmp_path):
    def asked(*argv):
        command = [sys.executable, "-m", "harness", *argv, "--slurm", hung]
        return subprocess.run(command, env=engine[1], cwd=tmp_path, capture_output=True, text=True, check=False)

    said = asked("stacks", "--json")
    ranks = json.loads(said.stdout)["ranks"]
    assert [(rank["rank"], rank["node"]) for rank in ranks] == [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")]

    verdict = json.loads(asked("watch", "--json").stdout)["verdict"]
    assert (verdict["kind"], verdict["cause"], verdict["rank"]) == ("HANG", "collective-mismatch", 3)
    assert "desync.py:12" in verdict["because"]
    assert "rank 3 ran on n2" in verdict["because"]
    steps = subprocess.check_output(["squeue", "-h", "--steps", "-o", "%i"], env=engine[1], text=True).split()
    assert [step for step in steps if not step.endswith(("extern", ".0"))] == [], "an agent is left"


@pytest.mark.long
def test_a_guard_tells_of_the_hang_of_a_job_of_slurm_and_of_its_end(engine, hung, tmp_path):
    command = [sys.executable, "-m", "harness", "guard", "--slurm", hung, "--every", "20s"]
    with (tmp_path / "guard.log").open("w") as log:
        guard = subprocess.Popen(command, env=engine[1], cwd=tmp_path, stderr=log)
    ledger = tmp_path / "runs" / "guard.jsonl"
    try:
        await_(lambda: ledger.exists() and '"hang"' in ledger.read_text(), "no hang", limit_s=400)
        subprocess.run(["scancel", hung], env=engine[1], check=True)
        assert guard.wait(200) == 0
    finally:
        guard.kill()
        guard.wait()
    events = [json.loads(line) for line in ledger.read_text().splitlines()]
    told = [event["id"] for event in events if "id" in event]
    assert told == [f"0-{hung}-1-hang", f"0-{hung}-1-ended"]


@pytest.mark.long
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(check, reached, tmp_path):
    check(reached, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("check", CLUSTER_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract_of_nodes(check, reached, engine, tmp_path):
    check(reached, tmp_path, engine[2])
