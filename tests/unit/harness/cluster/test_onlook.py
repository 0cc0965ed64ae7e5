"""A job of Slurm that runs already: what of it is found on a node, and what its nodes answer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from bench.strangers.audit import strace
from harness.cluster.head import AgentLink
from harness.cluster.onlook import NoSlurmJobError, ask, job_here, nodes_of
from harness.core.node import Node
from harness.observe.job import NoJobError

WAIT = [sys.executable, "-c", "print(1, flush=True); input()"]


@pytest.fixture
def ranks(tmp_path, monkeypatch):
    """Two ranks of step 3 of job 4711, of four, a helper of step 9, and one of the same user that is not the job's."""
    rows = [("3", "0"), ("3", "1"), ("9", "0"), ("", "7")]
    started = [
        subprocess.Popen(
            WAIT,
            env={**os.environ, "SLURM_JOB_ID": "4711", "SLURM_PROCID": rank, "SLURM_NTASKS": "4"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _, rank in rows
    ]
    for one in started:
        one.stdout.readline()
    listed = "".join(f"{p.pid} 4711 {step} - -\n" for p, (step, _) in zip(started, rows, strict=True) if step)
    says(tmp_path, monkeypatch, out=f"PID JOBID STEPID LOCALID GLOBALID\n{listed}")
    yield started
    for one in started:
        one.communicate(b"\n")


def says(tmp_path, monkeypatch, *, out, err=""):
    """A scontrol that answers this for job 4711 on node n1, and nothing else."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\n[ \"$*\" = 'listpids 4711 n1' ] || exit 1\nprintf '{out}'\nprintf '{err}' >&2\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_the_ranks_of_a_job_on_this_node_are_found_and_those_of_others_have_not_ended(ranks):
    job = job_here("4711", own_step="9", node="n1")

    assert [(w.member.rank, w.member.pid) for w in job.workers] == [(0, ranks[0].pid), (1, ranks[1].pid)]
    assert [(rank, required) for rank, _, required in job.absent] == [(2, False), (3, False)]
    assert job.gone == frozenset()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_no_process_is_looked_at_that_is_not_the_jobs(ranks, tmp_path):
    find = "from harness.cluster.onlook import job_here; print(job_here('4711', own_step='9', node='n1').workers)"

    done = subprocess.run([*strace(f"{tmp_path}/calls"), sys.executable, "-c", find], capture_output=True, check=False)

    calls = (tmp_path / "calls").read_text()
    looked_at = {int(pid) for line in calls.splitlines() for pid in re.findall(r"/proc/(\d+)[/\"]", line)}
    traced = {int(line.split()[0]) for line in calls.splitlines()}
    assert looked_at - traced == {ranks[0].pid, ranks[1].pid}, done.stderr


def test_of_a_job_that_has_nothing_here_that_is_said(tmp_path, monkeypatch):
    says(tmp_path, monkeypatch, out="PID JOBID STEPID LOCALID GLOBALID\n")

    with pytest.raises(NoJobError, match="job 4711 has no Python process on this node"):
        job_here("4711", own_step="9", node="n1")


def test_what_slurm_says_instead_of_the_processes_is_said(tmp_path, monkeypatch):
    says(tmp_path, monkeypatch, out="", err="No job steps exist on this node")

    with pytest.raises(NoSlurmJobError, match="job 4711 runs on this node: No job steps exist"):
        job_here("4711", own_step="9", node="n1")


class Connection:
    """An agent's: ``says`` are its answers, each to the message that has that key."""

    def __init__(self, **says):
        self.says, self.heard, self.member = says, [], None

    def send(self, **message):
        self.heard.append(message)
        for key, said in self.says.items():
            if key in message:
                self.member.inbox.put((self.member, {"id": message["id"], **said}))


def members(*connections):
    found = []
    for number, connection in enumerate(connections):
        node = Node(number=number + 4, host=f"n{number}", offset_s=100.0 * number)
        found.append(AgentLink(wire=connection, node=node))
        connection.member = found[-1]
    return found


def test_nodes_begin_at_one_moment_each_by_its_own_clock():
    two = [Connection(order={"ready": True}, go={"done": {"seen": n}}) for n in range(2)]

    answers, failures = ask(members(*two), {"slurm": "17"})

    assert [(node.number, node.host, said) for node, said in answers] == [
        (0, "n0", {"seen": 0}),
        (1, "n1", {"seen": 1}),
    ]
    assert failures == []
    begins = [message["go"] for one in two for message in one.heard if "go" in message]
    assert begins[1] - begins[0] == pytest.approx(100.0)


def test_a_node_that_cannot_look_does_not_keep_the_others_and_is_named():
    good, bad = Connection(order={"ready": True}, go={"done": {}}), Connection(order={"failed": "no Python process"})

    answers, failures = ask(members(good, bad), {"slurm": "17"})

    assert [node.host for node, _ in answers] == ["n0"]
    assert failures == ["n1: no Python process"]
    with pytest.raises(NoSlurmJobError, match="n0: no Python process"):
        ask(members(Connection(order={"failed": "no Python process"})), {"slurm": "17"})


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ("echo RUNNING 3", None),
        ("echo PENDING 3", "job 17 does not run: it is PENDING"),
        ("echo 'Invalid job id specified' >&2; exit 1", "Slurm knows no job 17"),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", "Slurm does not answer: Unable to contact"),
    ],
)
def test_what_slurm_says_of_a_job(tmp_path, monkeypatch, answers, said):
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n{answers}\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if said is None:
        assert nodes_of("17") == 3
    else:
        with pytest.raises(NoSlurmJobError, match=said):
            nodes_of("17")
