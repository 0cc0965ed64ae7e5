"""What may never return, and is not waited for for ever: a call into a sick driver, a file on a server that is gone."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def within_limit(work: Callable[[], T], *, limit_s: float) -> T:
    """``work()`` in a thread of its own.

    Raises:
        TimeoutError: it did not return in time; the thread is left to itself.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - handed to the caller below
            errors.append(error)

    thread = threading.Thread(target=run, name="within-limit", daemon=True)
    thread.start()
    thread.join(limit_s)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]
