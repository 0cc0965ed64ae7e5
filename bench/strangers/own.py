"""The processes of a program that was tried, by the folder that it alone works in: nobody else's."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from pathlib import Path


def those_in(folder: Path) -> list[psutil.Process]:
    """Every process whose working directory is ``folder``."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if one.cwd() == str(folder):
                found.append(one)
    return found


def end_those_in(folder: Path) -> None:
    """End them, also one that is stopped: what is left in a collective would keep its GPU from the next case."""
    for _ in range(3):
        left = those_in(folder)
        for one in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        if not psutil.wait_procs(left, timeout=5.0)[1]:
            return
