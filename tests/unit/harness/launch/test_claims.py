"""Claims: a GPU has one holder among all processes, whatever becomes of them. No driver is asked here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness.core.errors import LaunchError
from harness.launch.claims import PORTS, Claims, Stopped
from harness.observe.neighbours import identity

FOUR = ("0", "1", "2", "3")

HOLD = """
import sys, time
from pathlib import Path
from harness.launch.claims import Claims
folder, n, among, seconds, log = sys.argv[1:]
claims = Claims(Path(folder), identity=str, sleep=time.sleep)
for _ in range(int(seconds.partition("x")[2] or 1)):
    with claims.gpus(int(n), among=among.split(",")) as claim:
        with open(log, "a") as file:
            file.write(f"+ {' '.join(claim.names)}\\n")
            file.flush()
            time.sleep(float(seconds.partition("x")[0]))
            file.write(f"- {' '.join(claim.names)}\\n")
"""


def claims(folder: Path) -> Claims:
    return Claims(folder / "leases", identity=str, sleep=time.sleep)


def holder(folder: Path, n: int, among: str, seconds: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", HOLD, str(folder / "leases"), str(n), among, seconds, str(folder / "log")]
    return subprocess.Popen(argv)


def wait_for_line(folder: Path, number: int) -> list[str]:
    ends_s = time.monotonic() + 60.0
    while time.monotonic() < ends_s:
        lines = (folder / "log").read_text().splitlines() if (folder / "log").exists() else []
        if len(lines) >= number:
            return lines
        time.sleep(0.02)
    raise AssertionError(f"the log of the holders had no {number} lines within a minute")


def test_what_one_has_nobody_else_gets(tmp_path):
    with claims(tmp_path).gpus(3, among=FOUR) as mine:
        assert mine.names == ("0", "1", "2")
        assert claims(tmp_path).try_gpus(2, among=FOUR) is None
        other = claims(tmp_path).try_gpus(1, among=FOUR)
        assert other is not None
        assert other.names == ("3",)
        other.release()
    everything = claims(tmp_path).try_gpus(4, among=FOUR)
    assert everything is not None
    everything.release()


def test_a_failed_attempt_keeps_nothing(tmp_path):
    with claims(tmp_path).gpus(1, among=("2",)):
        assert claims(tmp_path).try_gpus(4, among=FOUR) is None
        with claims(tmp_path).gpus(3, among=FOUR) as rest:
            assert rest.names == ("0", "1", "3")


def test_a_holder_that_is_killed_by_sigkill_has_nothing_any_more(tmp_path):
    with holder(tmp_path, 2, "0,1", "300") as process:
        wait_for_line(tmp_path, 1)
        assert claims(tmp_path).try_gpus(1, among=("0", "1")) is None
        said: list[str] = []
        with pytest.raises(Stopped):
            claims(tmp_path).gpus(1, among=("0", "1"), waits=said.append, stop=lambda: bool(said))
        assert said == [f"process {process.pid}"]
        process.send_signal(signal.SIGKILL)
        process.wait()
        with claims(tmp_path).gpus(2, among=("0", "1")) as claim:
            assert claim.names == ("0", "1")


def test_a_waiter_that_is_killed_is_in_nobodys_way(tmp_path):
    with claims(tmp_path).gpus(1, among=("0", "1")):
        with holder(tmp_path, 2, "0,1", "1") as waits:
            ends_s = time.monotonic() + 60.0
            while (claim := claims(tmp_path).try_gpus(1, among=("0", "1"))) is not None and time.monotonic() < ends_s:
                claim.release()  # until it has its turn
                time.sleep(0.05)
            waits.kill()
            waits.wait()
        with claims(tmp_path).gpus(1, among=("0", "1")) as claim:
            assert claim.names == ("1",)


def test_many_processes_never_share_a_gpu_and_all_get_their_turn(tmp_path):
    """Six processes on three names, narrow and wide; two of them are killed on the way."""
    wants = [(1, "0,1,2"), (2, "0,1,2"), (3, "0,1,2"), (1, "2"), (2, "1,0"), (1, "0,1,2")]
    processes = [holder(tmp_path, n, among, "0.02x15") for n, among in wants]
    wait_for_line(tmp_path, 10)
    for process in processes[:2]:
        process.kill()
        process.wait()
    killed = {process.pid for process in processes[:2]}
    for process in processes[2:]:
        assert process.wait(120) == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) >= 4 * 30
    # A holder that was killed leaves a "+" without a "-": at most one each.
    held: list[str] = []
    lost = 0
    for line in lines:
        names = line[2:].split()
        if line[0] == "-":
            assert all(name in held for name in names)
            held = [name for name in held if name not in names]
        else:
            lost += sum(name in held for name in names)
            held = [name for name in held if name not in names] + names
    assert lost <= 3 * len(killed)


def test_who_wants_many_is_not_overtaken_for_ever(tmp_path):
    first = claims(tmp_path).gpus(1, among=("0", "1"))
    got = threading.Event()

    def want_both() -> None:
        with claims(tmp_path).gpus(2, among=("0", "1")):
            got.set()

    thread = threading.Thread(target=want_both, daemon=True)
    thread.start()
    ends_s = time.monotonic() + 30.0
    while (claim := claims(tmp_path).try_gpus(1, among=("0", "1"))) is not None and time.monotonic() < ends_s:
        claim.release()
    assert claim is None, "a narrow one must wait behind the wide one"
    assert not got.is_set()
    first.release()
    assert got.wait(30.0)
    thread.join(30.0)


def test_disjoint_gpus_do_not_wait_for_each_other(tmp_path):
    said: list[str] = []
    with claims(tmp_path).gpus(1, among=("0", "1")):
        thread = threading.Thread(
            target=lambda: claims(tmp_path).gpus(2, among=("0", "1"), waits=said.append).release(), daemon=True
        )
        thread.start()
        while not said:
            time.sleep(0.01)
        with claims(tmp_path).gpus(2, among=("2", "3")) as others:
            assert others.names == ("2", "3")
    thread.join(30.0)


def test_a_forked_child_keeps_what_its_killed_parent_held_until_it_ends_too(tmp_path):
    code = HOLD.replace('file.write(f"+', 'import os; os.fork() or time.sleep(2.0); file.write(f"+', 1)
    argv = [sys.executable, "-c", code, str(tmp_path / "leases"), "1", "0", "300", str(tmp_path / "log")]
    with subprocess.Popen(argv, start_new_session=True) as parent:
        wait_for_line(tmp_path, 1)
        parent.kill()
        parent.wait()
        assert claims(tmp_path).try_gpus(1, among=("0",)) is None
        os.killpg(parent.pid, signal.SIGKILL)
        claims(tmp_path).gpus(1, among=("0",)).release()


def test_release_counts_also_where_a_child_was_forked(tmp_path):
    claim = claims(tmp_path).gpus(1, among=("0",))
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        claim.release()
        again = claims(tmp_path).try_gpus(1, among=("0",))
        assert again is not None
        again.release()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_more_than_there_are_is_said_and_none_is_nothing(tmp_path):
    with pytest.raises(LaunchError, match="5 GPUs are wanted, but 4 are visible here"):
        claims(tmp_path).gpus(5, among=FOUR)
    assert claims(tmp_path).gpus(0, among=()).names == ()


def test_a_folder_that_cannot_be_used_is_said(tmp_path):
    (tmp_path / "leases").write_text("a file")
    with pytest.raises(LaunchError, match="NSA_HARNESS_LEASES names another"):
        claims(tmp_path).gpus(1, among=FOUR)


def test_ports_have_one_owner_and_nobody_listens_on_them(tmp_path):
    import socket

    first, second = claims(tmp_path).ports(3), claims(tmp_path).ports(3)
    assert len({*first.names, *second.names}) == 6
    assert all(int(name) in PORTS for name in first.names)
    first.release()
    with socket.create_server(("127.0.0.1", int(first.names[0]))):
        third = claims(tmp_path).ports(3)
        assert first.names[0] not in third.names
        third.release()
    second.release()


def test_a_gpu_is_the_same_by_its_number_and_by_its_uuid():
    uuids = ("GPU-aaaa", "GPU-bbbb")
    assert identity("1", uuids) == identity("GPU-bb", uuids) == identity("GPU-bbbb", uuids) == "GPU-bbbb"
    assert identity("7", uuids) == "7"
    assert identity("GPU-", uuids) == "GPU-", "it could be either"
    assert identity("MIG-cccc", uuids) == "MIG-cccc"
    assert identity("0", ()) == "0"
