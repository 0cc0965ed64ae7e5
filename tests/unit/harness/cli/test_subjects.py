"""What is told of a job of this machine that somebody else started."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys

from harness.cli.subjects import Here

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
