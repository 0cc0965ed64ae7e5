"""Signals: SIGUSR1 shows where every thread is, SIGTERM and SIGINT do too and end the run with a checkpoint.

The stacks are written by faulthandler, in C, at the moment of the signal: also while C++ computes or waits and no
Python code can run. The run ends at the next step boundary, where all ranks agree on it; a second SIGTERM or SIGINT
ends this process at once.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any

_ENDING = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """While this context is open, ending signals are remembered instead of obeyed."""

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
        faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
        for number in _ENDING:
            self._before[number] = signal.signal(number, self._remember)
            # Chained: first the stacks, at once, then the handler, when Python runs again.
            faulthandler.register(number, file=file, all_threads=True, chain=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        faulthandler.unregister(signal.SIGUSR1)
        self._let_go()

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        self._is_asked = True
        self._let_go()

    def _let_go(self) -> None:
        """Give the signals back to who had them."""
        for number, before in self._before.items():
            faulthandler.unregister(number)
            signal.signal(number, before)
        self._before.clear()
