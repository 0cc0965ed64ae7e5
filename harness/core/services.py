"""Service threads: those of a communication library that poll with a time limit, whatever the program does.

torch 2.13 names its own (``harness.core.movement.TICKERS``); torch 2.11 and NCCL do not: of a rank on an H200 five
threads called ``python`` woke up to 100 times a second while it hung in a lock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.movement import SERVICE, TICKER_SHARE
from harness.core.stacks import python_frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.evidence import ProcessState, StackSample, ThreadState

MOSTLY = 0.5
"""Share of the looks at which such a thread must be seen in its poll."""

SEES_ALL = ("py-spy", "pystack")
"""Stack sources that show every thread in which Python runs, by the kernel's number."""


def with_services(
    looks: Sequence[ProcessState], stacks: Iterable[StackSample], *, since_s: float = 0.0
) -> tuple[ProcessState, ...]:
    """``looks`` in which every service thread is called so. For jobs of several ranks: there such threads are known.

    What threads did before ``since_s`` does not count: while a library starts, they do other things.

    One is a side thread that polls with a time limit at most looks and waits for nothing else, uses next to no CPU,
    and in which no stack sample has seen Python; without a sample that could have, nothing is renamed.
    """
    seen: dict[int, set[int]] = {}
    for sample in stacks:
        if sample.source.startswith(SEES_ALL):
            python = {thread.tid for thread in sample.threads if python_frames(thread)}
            seen.setdefault(sample.pid, set()).update(python)
    late = [look for look in looks if look.t_s > since_s]
    found = {pid: _services([look for look in late if look.pid == pid], python) for pid, python in seen.items()}
    return tuple(_renamed(look, found.get(look.pid, frozenset())) for look in looks)


def _services(looks: Sequence[ProcessState], python: set[int]) -> frozenset[int]:
    threads: dict[int, list[tuple[float, ThreadState]]] = {}
    for look in looks:
        for thread in look.threads:
            if thread.tid != look.pid and thread.tid not in python:
                threads.setdefault(thread.tid, []).append((look.t_s, thread))
    return frozenset(tid for tid, states in threads.items() if _serves(states))


def _serves(states: Sequence[tuple[float, ThreadState]]) -> bool:
    polls = sum(thread.state == "S" and bool(thread.timed) and "poll" in thread.wchan for _, thread in states)
    # One that wakes two hundred times a second is now and then seen awake, or between two waits.
    passing = sum(thread.state in "RS" and not (thread.wchan and "poll" not in thread.wchan) for _, thread in states)
    if passing < len(states) or polls < MOSTLY * len(states):
        return False
    (first_s, first), (last_s, last) = states[0], states[-1]
    return last.cpu_s - first.cpu_s <= TICKER_SHARE * max(last_s - first_s, 1.0)


def _renamed(look: ProcessState, services: frozenset[int]) -> ProcessState:
    if not services:
        return look
    threads = tuple(replace(t, name=f"{SERVICE} {t.name}") if t.tid in services else t for t in look.threads)
    return replace(look, threads=threads)
