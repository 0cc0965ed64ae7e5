"""The process that trains rows of ``training.py``, seen from outside: started, read, found silent, ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from training_rows import ROOT, Row

STALL_S = {"first": 150.0, "later": 60.0}
"""Silence after which a row is ended: before the first step (kernels are compiled there), and later."""


class Worker:
    """A process, or torchrun with two, that trains rows; what it prints is read as it comes."""

    def __init__(self, rows: list[Row], *, gpu: int | None, smoke: bool, log: Path):
        self.running, self.has_reported = None, False
        self.last, self.is_first = time.monotonic(), True
        program = [str(Path(__file__).with_name("training_rank.py")), json.dumps([asdict(r) for r in rows])]
        program += ["--smoke"] if smoke else []
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={rows[0].gpus}"]
        command = [sys.executable, *(torchrun if rows[0].gpus > 1 else []), *program]
        environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1")
        if gpu is not None and not smoke:
            environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
        self.log = log.open("ab")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log, env=environment, start_new_session=True, cwd=ROOT
        )
        os.set_blocking(self.process.stdout.fileno(), False)
        self.unread = b""

    def read(self):
        """The records that have come since the last call."""
        self.unread += self.process.stdout.read() or b""
        *lines, self.unread = self.unread.split(b"\n")
        for line in lines:
            if not line.startswith(b"{"):
                self.log.write(line + b"\n")
                continue
            self.last = time.monotonic()
            record = json.loads(line)
            self.is_first = "begin" in record or (self.is_first and "step" not in record)
            yield record

    @property
    def is_stalled(self) -> bool:
        """Whether it has been silent for too long."""
        return time.monotonic() - self.last > STALL_S["first" if self.is_first else "later"]

    def end(self) -> None:
        """End the whole tree."""
        end_tree(self.process)
        self.log.close()


def end_tree(process: subprocess.Popen) -> None:
    """End a process that leads its own session, and all that it started; by SIGKILL what SIGTERM did not end."""
    for number, wait_s in ((signal.SIGTERM, 40.0), (signal.SIGKILL, 5.0)):  # torchrun gives its ranks 30 s
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(wait_s)
    process.wait()
