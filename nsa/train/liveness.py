"""A liveness line every few seconds, written by a process of its own: whatever the trainer does, stands or holds.

A line from a thread would stop when another thread holds the interpreter lock, and that is when it is needed; a line
in C would need a compiler where the trainer is installed. So the trainer writes where it is into a page of shared
memory (no system call, no lock, and it outlives a SIGKILL), and this file, run as a program, reads the page and
``/proc`` and writes ``liveness_rank<r>.jsonl``. A line says that the process is there, in which state, how much CPU
time it took, for how long it has been in its phase, and when Python last ran in it: a thread of the trainer ticks
twice a second, and cannot tick while the lock is held. Liveness is not progress: the lines have a file of their own,
so that nobody who waits for heartbeats mistakes one for the other.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PAGE = struct.Struct("<ddqq16s16s")
"""When Python last ran, when the last mark was made (both on the monotonic clock), how many marks there were, the
step, the phase and the edge."""

_MARK = struct.Struct("<dqq16s16s")
TICK_S = 0.5
QUIET_S = 10.0
"""A phase that lasts longer than this is said on standard error as well, every so often."""
BYE = b"."


class Page:
    """The trainer's side: where it is, in shared memory."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(PAGE.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), PAGE.size)
        self._n_marks = 0
        self.tick()
        self.mark("boot", "begin", None)

    def tick(self) -> None:
        """Python runs now."""
        struct.pack_into("<d", self._memory, 0, time.monotonic())

    def mark(self, phase: str, edge: str, step: int | None) -> None:
        """The trainer is here now."""
        self._n_marks += 1
        here = (-1 if step is None else step, phase.encode(), edge.encode())
        _MARK.pack_into(self._memory, 8, time.monotonic(), self._n_marks, *here)


@contextmanager
def liveness(folder: Path, *, rank: int, every_s: float, speaks: bool) -> Iterator[Page]:
    """A page to mark, watched by a process of its own for the length of the block.

    Args:
        folder: where ``liveness_rank<r>.jsonl`` is written.
        rank: this process's number.
        every_s: seconds between lines.
        speaks: whether long phases are said on standard error too.
    """
    path = folder / f"liveness_rank{rank}.page"
    page, is_over = Page(path), threading.Event()

    def tick() -> None:
        while not is_over.wait(TICK_S):
            page.tick()

    # Neither the site's packages nor the user's settings: it is there in 20 ms and needs 8 MiB.
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(rank), str(path), str(every_s)]
    watcher = subprocess.Popen([*command, str(int(speaks))], stdin=subprocess.PIPE)
    assert watcher.stdin is not None
    threading.Thread(target=tick, name="nsa-liveness", daemon=True).start()
    try:
        yield page
    finally:
        is_over.set()
        watcher.communicate(BYE)
        path.unlink(missing_ok=True)


def watch(pid: int, rank: int, path: Path, *, every_s: float, speaks: bool) -> None:
    """The watcher's side: write lines until the trainer says that it is done, or is gone."""
    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), PAGE.size, prot=mmap.PROT_READ)
    out = os.open(path.with_suffix(".jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    cpu_s, said = _cpu_s(pid), time.monotonic()
    while True:
        readable, _, _ = select.select([0], [], [], every_s)
        is_bye = bool(readable) and os.read(0, 1) == BYE
        msg = "ended" if is_bye else "gone" if readable or os.getppid() != pid else "alive"
        record = _record(pid, rank, PAGE.unpack(memory), msg)
        before, cpu_s = cpu_s, _cpu_s(pid) or cpu_s
        record["cpu_s"] = round(cpu_s - before, 3)
        os.write(out, json.dumps(record).encode() + b"\n")
        if speaks and msg == "alive" and record["in_phase_s"] >= QUIET_S and time.monotonic() - said >= QUIET_S:
            said = time.monotonic()
            os.write(2, _sentence(record).encode() + b"\n")
        if msg != "alive":
            return


def _record(pid: int, rank: int, page: tuple[float, float, int, int, bytes, bytes], msg: str) -> dict[str, Any]:
    """One line: the common fields of a heartbeat, then what the page and the kernel say."""
    ticked, marked, n_marks, step, phase, edge = page
    now, wall = time.monotonic(), time.time()
    state, n_threads = _state(pid)
    return {
        "ts": wall,
        "iso": datetime.fromtimestamp(wall, UTC).isoformat(),
        "pid": pid,
        "rank": rank,
        "step": None if step < 0 else step,
        "msg": msg,
        "phase": phase.rstrip(b"\0").decode(),
        "edge": edge.rstrip(b"\0").decode(),
        "n_marks": n_marks,
        "in_phase_s": round(now - marked, 3),
        "python_ran_s_ago": round(now - ticked, 3),
        "state": state,
        "n_threads": n_threads,
    }


def _sentence(record: dict[str, Any]) -> str:
    return (
        f"[alive] rank {record['rank']}: step {record['step']}, {record['in_phase_s']:.0f} s since "
        f"{record['phase']} {record['edge']}; main thread {record['state']}, {record['cpu_s']} s CPU since the last "
        f"look, Python ran {record['python_ran_s_ago']:.1f} s ago"
    )


def _fields(pid: int) -> list[str]:
    """``/proc/<pid>/stat`` behind the name, which may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _cpu_s(pid: int) -> float:
    fields = _fields(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _state(pid: int) -> tuple[str, int]:
    """The main thread's state (R runs, S sleeps, D waits for a device, T is stopped, Z is dead), and their number."""
    fields = _fields(pid)
    return (fields[0], int(fields[17])) if fields else ("gone", 0)


if __name__ == "__main__":
    # Ctrl-C and kill are meant for the trainer; when it has obeyed, the pipe says so.
    for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(_number, signal.SIG_IGN)
    _pid, _rank, _path, _every_s, _speaks = sys.argv[1:]
    watch(int(_pid), int(_rank), Path(_path), every_s=float(_every_s), speaks=_speaks == "1")
