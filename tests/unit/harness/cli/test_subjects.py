"""What is told of a job of this machine that somebody else started."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from dataclasses import replace

from harness.cli.watch import Here, _command
from harness.observe.job import Member
from harness.observe.procfs import Files
from harness.report.watched import whereabouts

SLEEPS = "import time; print('don\\'t', flush=True); time.sleep(60)"


def test_a_job_has_its_command_line_without_secrets_its_folder_its_host_and_its_age(tmp_path):
    words = [sys.executable, "-c", SLEEPS, "--token", "tell-nobody-of-this"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            job = Here(child.pid).job
        finally:
            child.kill()

    assert shlex.split(job.command) == [*words[:-1], "<hidden>"]
    assert (job.directory, job.host) == (str(tmp_path), socket.gethostname())
    assert job.age_s is None or 0.0 <= job.age_s < 60.0


def test_a_job_that_has_just_ended_is_named_by_what_was_read_before():
    """Its line in the report was empty."""
    gone = Member(pid=2**22 + 1, started=1, parent=1, state="S", command="python", argv="python a.py --token abc")
    assert _command(gone, Files()) == "python a.py --token '<hidden>'"
    assert _command(replace(gone, argv=""), Files()) == "python"


def test_of_a_shell_above_two_jobs_the_other_one_is_told_with_the_first(tmp_path):
    """Only the first was named, and the other nowhere."""
    one, other = ([sys.executable, "-c", SLEEPS, "--password", word] for word in ("one-secret", "other-secret"))
    script = f"{shlex.join(one)} & read go; {shlex.join(other)} & wait"
    shell = ["bash", "-c", script]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as above:
        try:
            above.stdout.readline()
            above.stdin.write(b"go\n")
            above.stdin.flush()
            above.stdout.readline()
            job = Here(above.pid).job
        finally:
            os.killpg(above.pid, signal.SIGKILL)

    (beside,) = job.others
    assert beside.startswith("process ")
    assert beside.endswith("--password '<hidden>'")
    assert job.command.endswith("--password '<hidden>'")
    assert f"; beside it: {beside}" in whereabouts(job)
