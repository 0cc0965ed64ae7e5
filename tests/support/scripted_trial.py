"""A running trial by script: it beats, works, falls silent and ends at fake times, without a process."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.core.evidence import ProcessState, ThreadState
from harness.core.outcome import Cleanup, Exit, Survivor
from harness.core.ports import ProcessRef
from harness.observe.devices.devices import Devices
from harness.observe.job import Member
from harness.observe.proc import Proc
from harness.observe.runner import Eyes, Runner
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fake_clock import FakeClock
    from harness.core.evidence import Evidence
    from harness.core.outcome import Outcome
    from harness.core.ports import Clock, StackSource

NO_PID = 2**22 + 1
"""Above the kernel's largest PID, so that no real process is ever meant."""


class ScriptedHandle:
    """A trial that does what it is told. ``ignores_stop`` makes it survive everything that ends processes."""

    def __init__(
        self, *, clock: FakeClock, trial_dir: Path, pid: int = NO_PID, ignores_stop: bool = False, leaves: int = 0
    ) -> None:
        self.clock, self.trial_dir, self.pid, self.ignores_stop, self.leaves = (
            clock,
            trial_dir,
            pid,
            ignores_stop,
            leaves,
        )
        self.signals: list[int] = []
        self.stops = 0
        self._exit: Exit | None = None
        self._seq = 0
        self._rank_pids: dict[int, int] = {}
        self._ended: set[int] = set()

    # -- the script

    def beat(
        self, *, phase: str, step: int | None = None, edge: str = "begin", detail: str | None = None, rank: int = 0
    ) -> None:
        """Write a mark now."""
        self._write({"phase": phase, "edge": edge, "step": step, "detail": detail}, rank=rank)

    def start_ranks(self, world: int) -> None:
        """Say that there are ``world`` ranks, each with a PID of its own."""
        for rank in range(world):
            self._rank_pids[rank] = self.pid + 1 + rank
            self._journal({"event": "started", "rank": rank, "pid": self._rank_pids[rank]})

    def end_rank(self, rank: int, *, code: int | None = None, signal: int | None = None) -> None:
        """End one rank now; the others do not notice."""
        self._ended.add(rank)
        how = {"signal": signal} if code is None else {"code": code}
        self._journal({"event": "ended", "rank": rank, "pid": self._rank_pids[rank], **how})

    def lose_rank(self, rank: int) -> None:
        """Let a rank's process be gone, of which nobody says how it ended."""
        self._ended.add(rank)

    def finish_step(self, *, step: int, facts: Mapping[str, float] | None = None, rank: int = 0) -> None:
        """Write a finished step now."""
        self._write({"event": "step", "step": step, "facts": dict(facts or {})}, rank=rank)

    def train(self, *, steps: int, step_s: float, start_s: float = 1.0) -> None:
        """Beat through ``steps`` steps, the first one after ``start_s``; it does not exit."""
        self.clock.at(0.0, lambda: self.beat(phase="build"))
        for step in range(steps):
            begin_s = start_s + step * step_s
            self.clock.at(begin_s, lambda step=step: self.beat(phase="forward", step=step))
            self.clock.at(begin_s + step_s / 2, lambda step=step: self.beat(phase="backward", step=step))
            self.clock.at(begin_s + step_s, lambda step=step: self.finish_step(step=step, facts={"loss": 1.0}))

    def exit(self, *, code: int | None = None, signal: int | None = None) -> None:
        """End now."""
        self._exit = self._exit or Exit(code=code, signal=signal)

    def exit_at(self, seconds: float, *, code: int | None = None, signal: int | None = None) -> None:
        """End when ``seconds`` have passed since the clock began."""
        self.clock.at(seconds, lambda: self.exit(code=code, signal=signal))

    # -- core.ports.Handle

    def poll(self) -> Exit | None:
        """How it ended."""
        return self._exit

    def processes(self) -> tuple[ProcessRef, ...]:
        """Itself and its ranks while they live."""
        pids = [self.pid, *(pid for rank, pid in self._rank_pids.items() if rank not in self._ended)]
        return () if self._exit else tuple(ProcessRef(pid, 1) for pid in pids)

    def signal(self, number: int) -> None:
        """Remember the signal."""
        self.signals.append(number)

    def stop(self, *, grace_s: float, clock: Clock) -> Cleanup:
        """End it, unless it ignores that; what it left behind is counted."""
        self.stops += 1
        if self.ignores_stop and self._exit is None:
            clock.sleep(grace_s)
            return Cleanup(survivors=(Survivor(pid=self.pid, state="D", command="scripted"),))
        ended = self.leaves + (self._exit is None)
        self._exit = self._exit or Exit(signal=15)
        return Cleanup(signals=((clock.now(), "SIGTERM", ended),) if ended else (), ended=ended)

    def _journal(self, row: Mapping[str, object]) -> None:
        with layout.ranks(self.trial_dir).open("a") as file:
            file.write(json.dumps({"t": self.clock.now(), **row}) + "\n")

    def _write(self, facts: Mapping[str, object], *, rank: int) -> None:
        self._seq += 1
        pid = self._rank_pids.get(rank, self.pid)
        record = {"seq": self._seq, "t": self.clock.now(), "rank": rank, "pid": pid, **facts}
        with layout.heartbeat(self.trial_dir, rank).open("a") as file:
            file.write(json.dumps(record) + "\n")


def watch(
    *, sources: Sequence[StackSource], view: Any = None, devices: Devices | None = None, **given: Any
) -> tuple[Outcome, Evidence]:
    """Watch a trial to its end, with ``view`` for /proc; what is ``given`` besides is the runner's."""
    eyes = Eyes(sources=sources, devices=devices or Devices(), view=view or Proc())
    return Runner(eyes=eyes, **given).run()


@dataclass
class ScriptedView:
    """What /proc would say of a scripted trial: one thread that sleeps, or burns ``cpu_share`` of a core for a time.

    ``call``, ``holders`` and ``outside`` say what it is blocked in and who can end that; ``others`` says the same of
    single processes by PID, in the words of ``ThreadState``.
    """

    state: str = "S"
    wchan: str = "futex_do_wait"
    timed: bool | None = False
    call: str = "futex"
    holders: tuple[int, ...] = ()
    outside: bool | None = False
    cpu_share: float = 0.0
    rests_from_s: float = math.inf
    gone: bool = False
    others: dict[int, dict[str, Any]] = field(default_factory=dict)
    argv: str = ""
    looks: list[ProcessState] = field(default_factory=list)

    def has_open(self, pid: int, name: str) -> bool:
        """None of it has our file open."""
        return False

    def main_thread(self, pid: int) -> str:
        """Unknown: whatever is printed is progress."""
        return ""

    def look(
        self,
        pid: int,
        *,
        id: str,
        t_s: float,
        rank: int = 0,
        children: int = 0,
        since: str | None = None,
        ends: object = None,
    ) -> ProcessState | None:
        """The scripted state; CPU time is proportional to time."""
        if self.gone:
            return None
        facts: dict[str, Any] = {
            "name": "python",
            "state": self.state,
            "wchan": self.wchan,
            "cpu_s": self.cpu_share * min(t_s, self.rests_from_s),
            "timed": self.timed,
            "call": self.call,
            "holders": self.holders,
            "outside": self.outside,
            **self.others.get(pid, {}),
        }
        facts["cpu_s"] = facts.pop("cpu_share", 0.0) * t_s or facts["cpu_s"]
        thread = ThreadState(tid=pid, voluntary_switches=1, involuntary_switches=0, **facts)
        look = ProcessState(
            id=id,
            t_s=t_s,
            rank=rank,
            pid=pid,
            state=thread.state,
            threads=(thread,),
            rss_bytes=1 << 20,
            minor_faults=0,
            read_bytes=0,
            written_bytes=0,
            children=children,
            undisturbed_since=since,
        )
        self.looks.append(look)
        return look

    def member(self, pid: int) -> Member | None:
        """A Python process that calls itself by the PID that it has here."""
        if self.gone:
            return None
        return Member(
            pid=pid, started=1, parent=1, state=self.state, command="python", inner=pid, python=True, argv=self.argv
        )

    def peak_rss_bytes(self, pid: int) -> int:
        """One mebibyte."""
        return 0 if self.gone else 1 << 20
