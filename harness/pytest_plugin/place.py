"""What the process that runs tests and its waiter tell each other, and how such a process is started.

Standard library only. They share files in one folder of the session; the state is one record, written over at each
phase of each test: a few microseconds.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.shim.nsa_harness_shim import OF_A_HUNG_TEST

if TYPE_CHECKING:
    from collections.abc import Iterable

EXIT = "exit"
"""The phase after the last test: the process is to end."""

FINISH = "finish"
"""The phase of ``pytest_sessionfinish``, behind the last test."""

SIGNAL = OF_A_HUNG_TEST
"""By it the waiter asks the process to fail the test that runs. Sent only when a test hangs."""

RECORD_BYTES = 4096
"""One page: a line in it is written and read as a whole."""

CAPTURED_BYTES = 2**20
"""The most of captured output that is taken over from a process that is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTest:
    """What runs now. ``seq`` counts phases (0: no test runs), ``began_s`` is on the machine's monotonic clock.

    ``began_ticks`` is the same in the kernel's clock ticks since boot, as processes are dated. ``after_s`` is when it
    is first looked at, seconds (0: never), ``stall_s`` the longest healthy wait for somebody outside. ``answered``
    counts the signals of the waiter that Python has answered. ``alarm_s`` is when pytest-timeout's alarm rings,
    on the same clock as ``began_s`` (0: SIGALRM is not its), ``watchdog`` which thread is that of pytest's
    faulthandler_timeout (0: none). ``status`` is the exit status of a session that has only to end.
    """

    seq: int = 0
    phase: str = ""
    nodeid: str = ""
    path: str = ""
    began_s: float = 0.0
    began_ticks: int = 0
    after_s: float = 0.0
    answered: int = 0
    alarm_s: float = 0.0
    watchdog: int = 0
    stall_s: float = 0.0
    status: int = 0

    def notice(self, *, text: str, **facts: Any) -> HangNotice:
        """What is told of its hang, ``text`` and other ``facts``."""
        return HangNotice(seq=self.seq, nodeid=self.nodeid, phase=self.phase, text=text, **facts)


FIELDS = tuple(RunningTest.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HangNotice:
    """What is told of a hang, for the failure of the test ``nodeid``. Without ``verdict``, a limit that it outran.

    ``out`` and ``err`` are what pytest had captured of its phase, where it is ended with its process.
    """

    seq: int
    nodeid: str
    phase: str
    text: str
    seconds: float = 0.0
    verdict: str = ""
    report: str = ""
    out: str = ""
    err: str = ""

    @property
    def sections(self) -> list[tuple[str, str]]:
        """What pytest had captured, as the report of a test has it."""
        streams = (("stdout", self.out), ("stderr", self.err))
        return [(f"Captured {name} {self.phase}", text) for name, text in streams if text]

    @property
    def properties(self) -> list[tuple[str, str]]:
        """What JUnit is told beside the text; nothing where there is no verdict."""
        return [("hang_guard_verdict", self.verdict), ("hang_guard_report", self.report)] if self.verdict else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """What the session's summary has of one phase of a test.

    ``why`` is the answer of the look at it ``seconds`` after it began. Without one the look was still going on when
    the phase came to its end (``is_over``), or when the session did. ``ended_for`` is the test that hung, and for which
    the worker was ended before Python could wait for the thread that this test had started.
    """

    nodeid: str
    phase: str
    seconds: float = 0.0
    why: str = ""
    is_over: bool = False
    ended_for: str = ""

    @property
    def sentence(self) -> str:
        """The line of the summary."""
        test = f"{self.nodeid} ({self.phase})"
        if self.ended_for:
            return (
                f"{test}: it left a thread; its worker was ended for {self.ended_for} before Python could wait for that"
            )
        before = "was over" if self.is_over else "the session ended"
        why = self.why or f"it was looked at from then on, and {before} before the answer"
        return f"{test}: after {self.seconds:.0f} s: {' '.join(why.split())}"


class StateFile:
    """The record of one process that runs tests."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, state: RunningTest) -> None:
        """Say what runs now."""
        record = {name: getattr(state, name) for name in FIELDS}
        text = json.dumps(record)
        if len(text) >= RECORD_BYTES:  # a test id as long as a page
            text = json.dumps(record | {"nodeid": state.nodeid[:200], "path": state.path[:200]})
        os.pwrite(self.fd, f"{text}\n".encode(), 0)

    def read(self) -> RunningTest:
        """What runs now; nothing where that was just being written."""
        with suppress(ValueError, TypeError):
            return RunningTest(**json.loads(os.pread(self.fd, RECORD_BYTES, 0).partition(b"\n")[0]))
        return RunningTest()

    def close(self) -> None:
        """Give the file back."""
        os.close(self.fd)


def tell(path: Path, notice: HangNotice) -> None:
    """Write the notice of a hang; all of it or nothing."""
    _write(path, json.dumps(asdict(notice)))


def read_notice(path: Path) -> HangNotice | None:
    """The last notice of a hang; None without."""
    with suppress(OSError, ValueError, TypeError):
        return HangNotice(**json.loads(path.read_text()))
    return None


def write_mentions(path: Path, mentions: Iterable[Mention]) -> None:
    """Write what the summary is to have, a line of JSON each; all of it or nothing."""
    _write(path, "".join(f"{json.dumps(asdict(mention))}\n" for mention in mentions))


def read_mentions(path: Path) -> list[Mention]:
    """What the summary is to have; nothing where nobody wrote it."""
    with suppress(OSError, ValueError, TypeError):
        return [Mention(**json.loads(line)) for line in path.read_text().splitlines()]
    return []


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(".tmp")
    fresh.write_text(text)
    fresh.replace(path)


def captured(pid: int, fd: int) -> str:
    """The end of what pytest has captured of ``fd`` in the process ``pid``: a file of its own, without a name."""
    path = f"/proc/{pid}/fd/{fd}"
    with suppress(OSError):
        if os.readlink(path).endswith(" (deleted)") and stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH115, PTH116
            with open(path, "rb") as file:  # noqa: PTH123
                file.seek(max(0, os.fstat(file.fileno()).st_size - CAPTURED_BYTES))
                return file.read(CAPTURED_BYTES).decode(errors="replace")
    return ""


def read_owners(path: Path, *, pid: int) -> list[str]:
    """The tests that left threads in the process ``pid`` which are still there, as it noted them in ``path``."""
    with suppress(OSError, ValueError):
        owners: dict[str, str] = json.loads(path.read_text())
        return [nodeid for thread, nodeid in owners.items() if os.path.exists(f"/proc/{pid}/task/{thread}")]  # noqa: PTH110
    return []


def waited_for(state: RunningTest, path: Path, *, pid: int) -> RunningTest:
    """``state``, at the end of a process that of the test whose thread Python still waits for: others have ended."""
    tests = read_owners(path, pid=pid) if state.phase == EXIT else []
    return replace(state, nodeid=tests[0]) if tests else state


def ticks_now() -> int:
    """The present in clock ticks since boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def python(module: str, *arguments: object, light: bool = False) -> list[str]:
    """The command that calls ``main`` of one of our modules, whatever lies in the folder that it is started in.

    Of packages it finds ours and, where it is not ``light``, those that are installed.
    """
    root = str(Path(__file__).resolve().parents[2])
    load = f"import sys; sys.path.insert(0, {root!r}); from harness.pytest_plugin.{module} import main"
    code = f"{load}; main(sys.argv[1:])"
    return [sys.executable, "-P", *(["-S"] if light else []), "-c", code, *map(str, arguments)]
