"""Ending a process tree: TERM and CONT, grace, KILL in rounds, and proof that nothing is left."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from harness.core.outcome import Cleanup, Survivor
from harness.launch import procs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.core.ports import Clock
    from harness.launch.procs import Process

KILL_LIMIT_S = 5.0
"""How long to go on after the first KILL; what is left then is in the kernel (state D) or not ours."""

RUNNABLE_LIMIT_S = 30.0
"""The same while one of them is runnable (state R): who was killed ends once it gets the CPU, which others may have."""

_SHORTEST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.05


def end_tree(
    *,
    live: Callable[[], Sequence[Process]],
    confirm: Callable[[], bool],
    grace_s: float,
    clock: Clock,
    since_s: float,
    spare_s: float = 0.0,
    send: Callable[[Process, int], bool] = procs.send,
    read: Callable[[int], Process | None] = procs.read,
) -> Cleanup:
    """End everything that ``live`` lists, and look again until it lists nothing and ``confirm`` agrees.

    What was seen once must be seen dead: a process that is on its way out has lost its environment, and with it
    its token, while a driver may still hold it in the kernel.

    Until ``grace_s`` is over, each process gets TERM once (CONT after it if it is stopped, or it could not act on
    it); from then on KILL, in rounds, because a process may fork while we look. ``since_s`` is the trial's start on
    ``clock``; the seconds in the result count from it. For ``spare_s`` nothing is signalled: who ends by itself in that
    time, as a resource tracker does whose program has ended, was not left behind.
    """
    sent_signals: dict[tuple[int, int], set[int]] = {}

    def remaining_processes() -> list[Process]:
        listed = {(process.pid, process.started): process for process in live()}
        for pid, started in sent_signals.keys() - listed.keys():
            now = read(pid)
            if now is not None and now.started == started and not now.dead:
                listed[pid, started] = now
        return list(listed.values())

    spared_until_s = clock.now() + spare_s
    while clock.now() < spared_until_s and live():
        clock.sleep(_LONGEST_PAUSE_S)
    signals: list[tuple[float, str, int]] = []
    begun_s = clock.now()
    pause_s = _SHORTEST_PAUSE_S
    killing = False
    while True:
        remaining = remaining_processes()
        now_s = clock.now()
        for process in remaining:
            sent_signals.setdefault((process.pid, process.started), set())
        limit_s = RUNNABLE_LIMIT_S if any(process.state == "R" for process in remaining) else KILL_LIMIT_S
        if (not remaining and confirm()) or now_s - begun_s > grace_s + limit_s:
            break
        if not killing and now_s - begun_s >= grace_s:
            killing, pause_s = True, _SHORTEST_PAUSE_S
        stopped = [process for process in remaining if process.state in "Tt"]
        steps = ((signal.SIGKILL, remaining),) if killing else ((signal.SIGTERM, remaining), (signal.SIGCONT, stopped))
        for number, processes in steps:
            count = 0
            for process in processes:
                sent = sent_signals[process.pid, process.started]
                if number not in sent and send(process, number):
                    sent.add(number)
                    count += 1
            if count:
                signals.append((round(now_s - since_s, 3), number.name, count))
        clock.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
    survivors = tuple(Survivor(pid=p.pid, state=p.state, command=p.command) for p in remaining)
    return Cleanup(signals=tuple(signals), ended=len(sent_signals) - len(survivors), survivors=survivors)
