"""Recordings: what was seen of real hangs, kept as files, as a Case that the rules can judge.

A recording is a folder as ``tests/data/evidence/h200`` describes it: the raw output of the tools, and a
``recording.json`` with what the tools did not say. Nothing is made up: what was not recorded is not in the Case.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from harness.core.devices import CollectiveState, GpuProcess, GpuSample
from harness.core.evidence import (
    Evidence,
    Frame,
    Heartbeat,
    LogTail,
    ProcessState,
    RankFacts,
    SourceFailure,
    StackSample,
    ThreadStack,
    ThreadState,
)
from harness.core.outcome import Ending, Exit, Outcome, StopReason
from harness.core.point import Point
from harness.core.trial import Budget, Limit, Trial
from harness.core.verdict import Case
from harness.observe.devices.parse_recorder import parse_recorder
from harness.observe.stacks.parse import parse_pyspy

if TYPE_CHECKING:
    from pathlib import Path

_THREAD = re.compile(r'^Thread (\d+) \((active|idle)[^)]*\)(?:: "(.*)")?$')
_FRAME = re.compile(r"^    (.+) \((.+?)(?::(\d+))?\)$")
_STEP = re.compile(r"^step (\d+) (\d)$", re.MULTILINE)
_TICKS_PER_S = 100


def load_recording(folder: Path) -> tuple[Case, dict[str, Any]]:
    """The case that was recorded in ``folder``, and the verdict that it must get (kind, cause, rank, phase)."""
    told = json.loads((folder / "recording.json").read_text())
    ranks = {int(rank): pid for rank, pid in told["ranks"].items()}
    exits = {int(rank): end for rank, end in told["exits"].items()}
    marks = _marks(folder, told, ranks)
    log = (folder / "log.txt").read_text()
    evidence = Evidence(
        steps_wanted=told["steps_wanted"],
        steps_done=3,
        heartbeats=marks,
        heartbeats_total=len(marks),
        silence_s=told["seen_at_s"] - told["last_mark_s"],
        stacks=_stacks(folder, ranks, t_s=told["seen_at_s"]),
        processes=_looks(folder, ranks, t_s=told["seen_at_s"]),
        failures=_failures(folder),
        logs=(LogTail(id="log-stderr", stream="stderr", text=log, size_bytes=len(log)),),
        gpus=_gpus(folder, told),
        collectives=_collectives(folder, t_s=told["seen_at_s"]),
        ranks=tuple(_facts(rank, pid, marks, exits.get(rank), told) for rank, pid in ranks.items()),
    )
    limit = Limit(seconds=told["stall_s"], source="recorded")
    trial = Trial(
        target="recording",
        point=Point.of({"fault": told["fault"]}),
        repeat=0,
        role="recorded",
        config={"parallel": {"mode": "ddp", "world": len(ranks)}},
        seed=0,
        code="recorded",
        machine="recorded",
        budget=Budget(startup=limit, stall=limit, total=Limit(seconds=600.0, source="recorded")),
    )
    crashed = len(exits) == len(ranks)
    outcome = Outcome(
        ending=Ending.EXITED if crashed else Ending.STOPPED_BY_US,
        exit=Exit(code=1) if crashed else Exit(signal=15),
        stopped_by=None if crashed else StopReason.STALL,
        duration_s=told["seen_at_s"],
    )
    return Case(trial=trial, outcome=outcome, evidence=evidence), told["expect"]


def _marks(folder: Path, told: dict[str, Any], ranks: dict[int, int]) -> tuple[Heartbeat, ...]:
    """The ranks' own words in the log; of the last step, a line of both at once counts for each of them."""
    steps = {(int(m[2]), int(m[1])) for m in _STEP.finditer((folder / "log.txt").read_text())}
    steps |= {(rank, step) for rank in ranks for step in range(3)}
    return tuple(
        Heartbeat(
            seq=step + 1,
            t_s=told["last_mark_s"] - 0.2 * (2 - step),
            rank=rank,
            pid=ranks[rank],
            phase="step",
            edge="end",
            step=step,
        )
        for rank, step in sorted(steps, key=lambda pair: (pair[1], pair[0]))
    )


def _facts(
    rank: int, pid: int, marks: tuple[Heartbeat, ...], end: dict[str, Any] | None, told: dict[str, Any]
) -> RankFacts:
    own = tuple(mark for mark in marks if mark.rank == rank)
    until_s = told["seen_at_s"] if end is None else end["t_s"]
    return RankFacts(
        id=f"rank-{rank}",
        rank=rank,
        pid=pid,
        steps_done=len(own),
        heartbeats=own,
        heartbeats_total=len(own),
        silence_s=max(until_s - own[-1].t_s, 0.0),
        exit=None if end is None else Exit(code=end.get("code"), signal=end.get("signal")),
        ended_s=None if end is None else end["t_s"],
    )


def _stacks(folder: Path, ranks: dict[int, int], *, t_s: float) -> tuple[StackSample, ...]:
    """Three samples of every rank, one after the other: without a pause, then as JSON, then with native frames."""
    found: list[StackSample] = []
    for rank, pid in ranks.items():
        for number, name in enumerate((f"nonblock_{pid}.txt", f"pyspy_{pid}.json", f"native_{pid}.txt")):
            path = folder / name
            if not path.exists():
                continue
            text = path.read_text()
            threads = parse_pyspy(text) if name.endswith("json") else parse_text(text)
            found.append(
                StackSample(
                    id=f"stack-{len(found) + 1}",
                    source="py-spy",
                    native=any(frame.native for thread in threads for frame in thread.frames),
                    t_s=t_s + 0.5 * number,
                    rank=rank,
                    pid=pid,
                    threads=threads,
                )
            )
    return tuple(found)


def parse_text(text: str) -> tuple[ThreadStack, ...]:
    """The threads in what ``py-spy dump`` prints for people; a frame without a line number is a native one."""
    threads: list[tuple[int, str, bool, list[Frame]]] = []
    for line in text.splitlines():
        if head := _THREAD.match(line):
            threads.append((int(head[1]), head[3] or "", head[2] == "active", []))
        elif (frame := _FRAME.match(line)) and threads:
            number = int(frame[3] or 0)
            threads[-1][3].append(Frame(function=frame[1], file=frame[2], line=number, native=frame[3] is None))
    return tuple(
        ThreadStack(tid=tid, name=name, frames=tuple(frames), active=active) for tid, name, active, frames in threads
    )


def _looks(folder: Path, ranks: dict[int, int], *, t_s: float) -> tuple[ProcessState, ...]:
    """The one look at every rank. The numbers of side threads were not recorded: they count up from the PID."""
    found: list[ProcessState] = []
    for rank, pid in ranks.items():
        path = folder / f"proc_{pid}.txt"
        if not path.exists():
            continue
        text = path.read_text()
        rows = re.findall(r"^(\S+) ([RSDTtZ]) (\d+) (\d+) (\S+)$", text, re.MULTILINE)
        counters = dict(re.findall(r"^(\w+):\s+(\S+)", text, re.MULTILINE))
        threads = tuple(
            ThreadState(
                tid=pid + i,
                name=name,
                state=state,
                wchan=wchan,
                cpu_s=(int(user) + int(system)) / _TICKS_PER_S,
                voluntary_switches=int(counters["voluntary_ctxt_switches"]) if i == 0 else 0,
                involuntary_switches=int(counters["nonvoluntary_ctxt_switches"]) if i == 0 else 0,
                timed="nanosleep" in wchan if i == 0 else None,
            )
            for i, (name, state, user, system, wchan) in enumerate(rows)
        )
        found.append(
            ProcessState(
                id=f"proc-{len(found) + 1}",
                t_s=t_s,
                rank=rank,
                pid=pid,
                state=counters["State"],
                threads=threads,
                rss_bytes=0,
                minor_faults=0,
                read_bytes=0,
                written_bytes=0,
                children=0,
            )
        )
    return tuple(found)


def _gpus(folder: Path, told: dict[str, Any]) -> tuple[GpuSample, ...]:
    """``nvidia-smi``, printed once: the cards, then the processes in the order of their ranks and cards."""
    lines = (folder / "smi.txt").read_text().splitlines()
    cards = [re.findall(r"[\d.]+", line) for line in lines if re.match(r"^\d+, \d+ %", line)]
    holders = [re.findall(r"\d+", line) for line in lines if re.match(r"^\d+, \d+ MiB", line)]
    by_pid = {pid: int(rank) for rank, pid in told["ranks"].items()}
    return tuple(
        GpuSample(
            id=f"gpu-{i + 1}",
            t_s=told["seen_at_s"],
            index=int(card[0]),
            name=told["gpus"],
            utilisation=int(card[1]),
            memory_utilisation=int(card[2]),
            memory_used_bytes=int(card[3]) << 20,
            power_w=float(card[4]),
            power_limit_w=told["power_limit_w"],
            sm_clock_mhz=int(card[5]),
            processes=tuple(
                GpuProcess(pid=int(pid), ours=True, memory_bytes=int(mib) << 20)
                for pid, mib, *_ in holders
                if by_pid.get(int(pid)) == int(card[0])
            ),
        )
        for i, card in enumerate(cards)
    )


def _collectives(folder: Path, *, t_s: float) -> tuple[CollectiveState, ...]:
    from dataclasses import replace

    states = [
        parse_recorder(path.read_bytes(), t_s=t_s, rank=int(path.name[-1]), source="pipe")
        for path in sorted(folder.glob("flight_recorder_*"))
    ]
    return tuple(replace(state, id=f"recorder-{i}") for i, state in enumerate(states, start=1))


def _failures(folder: Path) -> tuple[SourceFailure, ...]:
    return tuple(
        SourceFailure(id=f"failure-{i}", source="py-spy", reason=" ".join(path.read_text().split())[:200])
        for i, path in enumerate(sorted(folder.glob("*.err")), start=1)
    )
