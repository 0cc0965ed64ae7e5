"""What signals do to ``python -m nsa.train``."""

import json
import signal
import subprocess
import sys

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
    assert process.returncode == 143
    assert [step["step"] for step in steps] == list(range(len(steps)))
    assert err.count("in _run_module_as_main") == 2  # the main thread, once per signal
    assert "trainer.py" in err
    n_steps = int(err.partition("a signal ended the run after ")[2].partition(" ")[0])
    assert n_steps == len(steps)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == [f"step_{n_steps:08d}"]
