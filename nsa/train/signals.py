"""Signals: SIGUSR1 shows where every thread is, SIGTERM and SIGINT do too and end the run with a checkpoint.

The stacks are written by a thread of its own that holds the interpreter lock meanwhile: Python's frames do not change
under it, and it can write while the main thread waits or computes in C++. Only code that keeps the lock keeps it from
writing; SIGUSR2 is for that, where faulthandler writes from C. That must not be sent to a process that runs Python,
which can crash of it (ADR 18). The run ends at the next step boundary, where all ranks agree on it; a second SIGTERM
or SIGINT ends this process at once.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any, TextIO

_ENDING = (signal.SIGTERM, signal.SIGINT)
_NO_MORE = b"\0"


class Stop:
    """While this context is open, ending signals are remembered instead of obeyed. For the main thread."""

    def __init__(self) -> None:
        self._is_asked = False
        self._before: dict[signal.Signals, Any] = {}

    def asked(self) -> bool:
        """Whether this process was told to end."""
        return self._is_asked

    def __enter__(self) -> Stop:
        file = sys.__stderr__ or sys.stderr
        if not faulthandler.is_enabled():
            faulthandler.enable(file=file)
        faulthandler.register(signal.SIGUSR2, file=file, all_threads=True)
        # At a signal Python's own handler, in C, writes the signal's number into the pipe: at once, whatever runs.
        heard, self._said = os.pipe()
        os.set_blocking(self._said, False)
        self._wakeup_before = signal.set_wakeup_fd(self._said, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=_show, args=(heard, file), name="nsa-signals", daemon=True)
        self._thread.start()
        self._usr1_before = signal.signal(signal.SIGUSR1, _nothing)
        # A system call of C++ that waits goes on waiting.
        signal.siginterrupt(signal.SIGUSR1, False)  # noqa: FBT003 - it takes no names
        for number in _ENDING:
            self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._let_go()
        signal.signal(signal.SIGUSR1, self._usr1_before)
        signal.set_wakeup_fd(self._wakeup_before)
        os.write(self._said, _NO_MORE)
        self._thread.join()
        os.close(self._said)
        faulthandler.unregister(signal.SIGUSR2)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        self._is_asked = True
        self._let_go()

    def _let_go(self) -> None:
        """Give the signals back to who had them."""
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """The thread has been told by the pipe."""


def _show(heard: int, file: TextIO) -> None:
    """Write all stacks for each signal heard of that shows them, until told that there are no more."""
    shown = {signal.SIGUSR1, *_ENDING}
    while (number := os.read(heard, 1)) != _NO_MORE:
        if number[0] in shown:
            faulthandler.dump_traceback(file, all_threads=True)
    os.close(heard)
