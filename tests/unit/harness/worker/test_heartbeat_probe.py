from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from harness.observe.heartbeat import Heartbeats
from harness.worker.heartbeat import HeartbeatProbe
from nsa.train.probe import Edge, Phase


def test_every_mark_is_on_disk_at_once_and_in_order(tmp_path: Path):
    path = tmp_path / "beats.jsonl"
    probe = HeartbeatProbe(path)
    before = time.monotonic()
    probe.mark(phase=Phase.BUILD, edge=Edge.BEGIN, step=None)
    probe.mark(phase=Phase.FORWARD, edge=Edge.PROGRESS, step=0, detail="blocks.1")
    probe.step_done(step=0, facts={"loss": 1.5})
    lines = [json.loads(line) for line in path.read_text().splitlines()]  # before the file is closed

    assert [line["seq"] for line in lines] == [1, 2, 3]
    assert before <= lines[0]["t"] <= lines[2]["t"] <= time.monotonic()
    assert {line["pid"] for line in lines} == {os.getpid()}
    assert (lines[1]["phase"], lines[1]["edge"], lines[1]["step"], lines[1]["detail"]) == (
        "forward",
        "progress",
        0,
        "blocks.1",
    )
    assert (lines[2]["event"], lines[2]["step"], lines[2]["facts"]["loss"]) == ("step", 0, 1.5)
    assert (probe.phase, probe.steps_done) == ("forward", 1)
    probe.close()


def test_the_reader_understands_the_writer(tmp_path: Path):
    probe = HeartbeatProbe(tmp_path / "heartbeat_rank0.jsonl")
    probe.mark(phase=Phase.FORWARD, edge=Edge.BEGIN, step=0)
    probe.step_done(step=0, facts={"loss": float("nan")})
    beats = Heartbeats(tmp_path, started_s=0.0)

    assert beats.read()
    assert (beats.steps_done, beats.unreadable) == (1, 0)
    assert beats.facts["first_nonfinite_loss_step"] == 0.0
    beats.close()
    probe.close()


def test_a_full_disk_is_said_once_and_training_goes_on(capfd: pytest.CaptureFixture[str]):
    probe = HeartbeatProbe(Path("/dev/full"))
    for step in range(3):
        probe.step_done(step=step, facts={})
    probe.close()

    assert probe.steps_done == 3
    assert (probe.lost, probe.lost_why) == (3, "No space left on device")
    assert capfd.readouterr().err.count("heartbeats cannot be written: No space left on device") == 1


def test_a_folder_that_is_gone_does_not_end_training(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    probe = HeartbeatProbe(tmp_path / "gone" / "beats.jsonl")
    probe.mark(phase=Phase.BUILD, edge=Edge.BEGIN, step=None)

    assert probe.lost >= 1
    assert "No such file" in capfd.readouterr().err


def test_after_a_torn_line_the_next_one_starts_afresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    probe = HeartbeatProbe(tmp_path / "beats.jsonl")
    real = os.write
    with monkeypatch.context() as nearly_full:
        nearly_full.setattr("harness.worker.heartbeat.os.write", lambda fd, data: real(fd, data[:10]))
        probe.step_done(step=0, facts={})
    probe.step_done(step=1, facts={})
    probe.close()
    torn, whole = (tmp_path / "beats.jsonl").read_text().splitlines()

    assert len(torn) == 10
    assert json.loads(whole)["step"] == 1
    assert probe.lost == 1
    assert "only part of a line" in capfd.readouterr().err
