"""A thread that works ahead: what takes long to read is there when it is asked for, or the wait for it has an end."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from nsa.errors import DataFailed

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Ahead(Generic[T]):
    """Calls ``produce`` again and again in a thread of its own, at most ``depth`` results ahead of ``get``.

    The thread ends with the first exception, which ``get`` raises in its turn, or with ``close``.
    """

    def __init__(self, produce: Callable[[], T], *, depth: int) -> None:
        self._produce = produce
        self._ready: queue.Queue[tuple[T | None, Exception | None]] = queue.Queue(maxsize=depth)
        self._is_closed = threading.Event()
        # A daemon: a read that never returns must not hold the interpreter's end.
        self._thread = threading.Thread(target=self._work, name="nsa-data", daemon=True)
        self._thread.start()

    def get(self, timeout_s: float) -> T:
        """The next result.

        Raises:
            DataFailed: it is not there in time.
            Exception: what ``produce`` raised.
        """
        try:
            value, error = self._ready.get(timeout=timeout_s)
        except queue.Empty:
            raise DataFailed(f"no batch came within train.loader_timeout_s = {timeout_s:g} s") from None
        if error is not None:
            raise error
        return value  # pyrefly: ignore[bad-return] - None only beside an error

    def close(self) -> None:
        """Let the thread end after the call in progress; it is not waited for."""
        self._is_closed.set()
        while not self._ready.empty():
            self._ready.get_nowait()

    def _work(self) -> None:
        while not self._is_closed.is_set():
            try:
                found: tuple[T | None, Exception | None] = (self._produce(), None)
            except Exception as error:  # noqa: BLE001 - raised again by get, where it can be acted on
                found = (None, error)
            self._ready.put(found)
            if found[1] is not None:
                return
