"""What signals do to ``python -m nsa.train``."""

import json
import signal
import subprocess
import sys

import pytest

ENDLESS = (
    "train.steps=100000 model.n_layers=1 model.dim=32 model.n_heads=2 model.n_kv_groups=1 train.seq_len=32 "
    "train.log_every=1"
)


def test_sigusr1_shows_the_stacks_and_sigterm_too_then_saves_and_exits(tmp_path):
    command = [sys.executable, "-m", "nsa.train", "--override", f"{ENDLESS} train.out_dir={tmp_path}"]
    log = tmp_path / "log.txt"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()  # the kernels
        steps = [json.loads(process.stdout.readline())]
        process.send_signal(signal.SIGUSR1)
        while "in _run_module_as_main" not in log.read_text():  # of two dumps at once faulthandler drops one
            steps.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGTERM)
        steps += map(json.loads, process.stdout)
    err = log.read_text()
    assert process.returncode == 143, err
    assert [step["step"] for step in steps] == list(range(len(steps)))
    assert err.count("in _run_module_as_main") == 2  # the main thread, once per signal
    # By a thread that holds the interpreter lock: a handler in C can crash a process that runs Python (ADR 18).
    assert err.count("Current thread") == err.count("in _show") == 2
    assert "trainer.py" in err
    n_steps = int(err.partition("a signal ended the run after ")[2].partition(" ")[0])
    assert n_steps == len(steps)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == [f"step_{n_steps:08d}"]


STUCK = """
import ctypes, sys
from nsa.train.signals import Stop

def waits_in_c(library):
    mutex = ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    print("ready", flush=True)
    library.pthread_mutex_lock(mutex)

with Stop():
    waits_in_c(getattr(ctypes, sys.argv[1])(None))
"""


@pytest.mark.parametrize(
    ("library", "number"),
    [("CDLL", signal.SIGUSR1), ("CDLL", signal.SIGTERM), ("CDLL", signal.SIGUSR2), ("PyDLL", signal.SIGUSR2)],
)
def test_stacks_are_shown_while_the_main_thread_waits_in_c(library, number):
    """``PyDLL`` keeps the interpreter lock: then faulthandler alone can write, from C."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", STUCK, library], **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert any("in waits_in_c" in line for line in process.stderr)  # ends without it only if the process does
        assert process.poll() is None
        process.kill()
