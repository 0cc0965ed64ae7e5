"""gpus(n) under pytest with two real cards: nobody else works on the card that a test was leased."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from lease_log import NOTE, taken

TWO_WORKERS = (
    NOTE
    + """
import torch

@pytest.mark.parametrize("n", [1, 1, 2] * 8)
def test_alone(gpus, n):
    devices = gpus(n).devices
    assert len(devices) == n
    cards = [str(torch.cuda.get_device_properties(device).uuid) for device in devices]
    note("+", cards)
    for device in devices:
        a = torch.randn(2048, 2048, device=device)
        for _ in range(20):
            a = torch.nn.functional.normalize(a @ a)
        torch.cuda.synchronize(device)
    note("-", cards)
"""
)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_xdist_workers_never_work_on_one_card_at_a_time(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(TWO_WORKERS)
    env = {**os.environ, "NSA_HARNESS_LEASES": str(tmp_path / "leases"), "LEASE_LOG": str(tmp_path / "log")}
    env.pop("CUDA_VISIBLE_DEVICES", None)
    options = ["-q", "-p", "no:cacheprovider", "-p", "harness.pytest_plugin", "-n", "2"]
    argv = [sys.executable, "-m", "pytest", *options, "test_it.py"]
    done = subprocess.run(argv, cwd=tmp_path / "tests", env=env, capture_output=True, text=True, timeout=200)
    assert "24 passed" in done.stdout, done.stdout + done.stderr
    pairs = taken((tmp_path / "log").read_text().splitlines())
    assert len({pid for pid, _ in pairs}) == 2
    assert len({card for _, card in pairs}) == 2
