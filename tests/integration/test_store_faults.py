"""The store against real processes, real signals and a really full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.clock import WallClock
from harness.core.campaign import threshold_question
from harness.core.errors import RunBusyError, StoreError
from harness.core.point import Axis, AxisType
from harness.core.record import Machine
from harness.store import layout
from harness.store.run_store import RunStore, read_run

pytestmark = pytest.mark.usefixtures("_without_figures")

WRITER = """
import sys
from pathlib import Path
from harness.clock import WallClock
from harness.store.run_store import RunStore
store = RunStore.open(Path(sys.argv[1]), clock=WallClock())
print("open", flush=True)
for number in range(1_000_000):
    store.add_note(f"event {number} " + "x" * 4000)
    print(number, flush=True)
"""


def new_run(runs: Path) -> RunStore:
    axis = Axis(name="n_layers", path="model.n_layers", type=AxisType.ORDERED, values=(1, 2, 3))
    machine = Machine(python="3", torch="2", platform="Linux", kernel="6", cpu="c", cores=2, memory_bytes=1)
    spec = threshold_question(question="?", target="nsa", axis=axis)
    return RunStore.create(runs, spec=spec, machine=machine, code="c", argv=("nsa-harness",), clock=WallClock())


def start_writer(run_dir: Path) -> subprocess.Popen[str]:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(run_dir)], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "open\n"
    return writer


@pytest.mark.parametrize("events", [1, 2, 7])
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path, events):
    store = new_run(tmp_path)
    store.close()
    writer = start_writer(store.run_dir)
    for _ in range(events):
        acknowledged = writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read().split()
    acknowledged = int(rest[-1] if rest and rest[-1].isdigit() else acknowledged)
    writer.wait()
    writer.stdout.close()
    with RunStore.open(store.run_dir, clock=WallClock()) as again:  # the dead writer holds no lock
        notes = [note for note in again.run().notes if note.startswith("event ")]
    assert len(notes) in {acknowledged + 1, acknowledged + 2}
    assert all(note.startswith(f"event {number} ") for number, note in enumerate(notes))


def test_a_second_controller_is_refused_while_the_first_lives(tmp_path):
    store = new_run(tmp_path)
    store.close()
    writer = start_writer(store.run_dir)
    try:
        with pytest.raises(RunBusyError, match=f"PID {writer.pid}$"):
            RunStore.open(store.run_dir, clock=WallClock())
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    RunStore.open(store.run_dir, clock=WallClock()).close()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting needs root; tests/unit/harness/store/test_journal.py has the same case with a fake")
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mount.returncode != 0:
        pytest.skip(f"cannot mount here: {mount.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(store: RunStore) -> None:
    for number in range(1000):
        store.add_note(f"event {number} " + "x" * 5000)


def test_a_full_disk_stops_the_run_loses_nothing_and_can_be_resumed(small_disk):
    with new_run(small_disk) as store:
        with pytest.raises(StoreError) as caught:
            fill(store)
        written = len(store.run().notes)
        assert written > 10
        assert "No space left on device" in str(caught.value)
        assert str(layout.journal(store.run_dir)) in str(caught.value)
        assert len(read_run(store.run_dir).notes) == written
    assert layout.journal(store.run_dir).read_bytes().endswith(b"\n")
    subprocess.run(["mount", "-o", "remount,size=512k", str(small_disk)], check=True)
    with RunStore.open(store.run_dir, clock=WallClock()) as again:
        again.add_note("space again")
        assert len(again.run().notes) == written + 1
