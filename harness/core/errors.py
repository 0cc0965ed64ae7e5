"""Every error the harness raises on purpose, with what to do next."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class HarnessError(Exception):
    """Base class. The message says what happened and where; ``help`` says what to do next."""

    help = "Run the command again with --help for examples."


class SpecError(HarnessError):
    """A question, matrix file, axis or option that does not make sense as written."""

    help = "List what there is with: nsa-harness bisect --list-axes, or --list-faults."


class UnknownNameError(SpecError):
    """A name that no table holds; the message suggests the nearest one."""


class StoreError(HarnessError):
    """The run directory cannot be read or written."""

    help = "What was written before is safe. Free some space or choose another place with --runs, then --resume."


class JournalError(StoreError):
    """A journal that contradicts itself or belongs to another question."""

    help = "Start afresh without --resume, or look at the journal: one JSON object per line."


class RunBusyError(StoreError):
    """Another controller is working in this run directory."""

    help = "Wait for it, or end it by the PID in the message, then --resume."


class LaunchError(HarnessError):
    """A trial could not be started at all."""

    help = "Check this machine with: nsa-harness doctor"


class CleanupError(HarnessError):
    """A process of a trial could not be ended; later trials would not be trustworthy."""

    help = "The survivors are named above with PID and state; they need root or a reboot."


def suggestion(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` with the nearest known name, or an empty string when nothing is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown(what: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is in no table: nearest name first, then the whole list."""
    names = sorted(known)
    return UnknownNameError(f"unknown {what} {name!r}{suggestion(name, names)} Known: {', '.join(names)}.")
