"""A limit of the program's own ran out, of time or of CPU time: whoever set it ended it, and nothing else did."""

from __future__ import annotations

import re
from signal import SIGKILL, SIGXCPU
from typing import TYPE_CHECKING

from harness.classify.facts import OF_A_SIGNAL, conclude, place, silence_began_s
from harness.classify.signature import stack_names
from harness.core.node import in_words
from harness.core.outcome import Ending, signal_name
from harness.core.verdict import TIME_LIMIT, Confidence, Kind
from harness.reading.frames import deciding_thread, own_frame, same_stacks, spell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.evidence import EvidenceId, ProcessState, StackSample
    from harness.core.verdict import Case, Verdict

_TIMEOUT = re.compile(
    r"(?<![\w-])timeout(?P<options>(?:\s+-\S+(?:\s+(?:[A-Z]+\d*|\d+[smhd]?)(?=\s))?)*)\s+(?P<limit>\d[\d.]*[smhd]?)(?=\s)"
)
"""coreutils' ``timeout 60 python train.py`` in a command line, with its options."""

OF_TIMEOUT = 124
"""The exit status of coreutils' ``timeout`` when time is up."""

RECENT_S = 3.0
"""A silence that is shorter is not looked into."""

LATE_S = 2.0
"""CPU seconds that may be missing at the last look, as looks count them later than the kernel."""


def own_limit(case: Case) -> Verdict | None:
    """Its exit status, or a signal at the limit, tells; a result or our own signal would have come first."""
    exit_, result = case.outcome.exit, case.evidence.result
    if exit_ is None or case.outcome.ending not in (Ending.EXITED, Ending.SIGNALLED):
        return None
    if result is not None and result.status == "raised":
        return None
    number = exit_.signal or (exit_.code or 0) - OF_A_SIGNAL
    if number in (SIGKILL, SIGXCPU) and (look := _at_its_cpu_limit(case)) is not None:
        return _of_cpu(case, look, signal_name(number))
    return _of_time(case) if exit_.code == OF_TIMEOUT else None


def stood(case: Case) -> tuple[str, tuple[EvidenceId, ...]]:
    """Where the program was when time was up, and whether it moved, by the last looks; and what to cite for it."""
    samples = _last_seen(case)
    if not samples:
        if not case.evidence.heartbeats:
            return "nothing tells where it was", ()
        gets_on = "it still got on: " if case.evidence.silence_s < RECENT_S else ""
        return f"{gets_on}its last mark, {place(case)}, came {case.evidence.silence_s:.1f} s before", ("progress",)
    last = samples[-1]
    thread = deciding_thread(last)
    frame = own_frame(thread) if thread is not None else None
    assert frame is not None, "only such samples are taken"
    where = f"process {in_words(last.pid)} {{}} {spell(frame)}"
    if not same_stacks(samples):
        return where.format("was last seen in"), (last.id,)
    lasted_s = case.outcome.duration_s - samples[0].t_s
    return f"{where.format('stood still in')} for {lasted_s:.0f} s ({len(samples)} stacks are the same)", (last.id,)


def _last_seen(case: Case) -> list[StackSample]:
    """The samples since the last mark of the process whose stack last showed code of the program's own."""
    samples = [sample for sample in case.evidence.stacks if sample.t_s >= silence_began_s(case)]
    for last in reversed(samples):
        thread = deciding_thread(last)
        if thread is not None and own_frame(thread) is not None:
            return [sample for sample in samples if sample.pid == last.pid]
    return []


def _of_time(case: Case) -> Verdict | None:
    """The verdict on exit status 124 where ``timeout`` took part: it stands in the command, or was among its processes.

    Of a script only its processes tell.
    """
    match = _TIMEOUT.search(str(case.trial.config.get("command", "")))
    if match is None and not any(look.command == "timeout" for look in case.evidence.processes):
        return None
    name = f"`timeout {match['limit']}`" if match is not None else "`timeout`"
    where, ids = stood(case)
    return conclude(
        case,
        Kind.CRASH,
        cause=TIME_LIMIT,
        because=f"ended by its own {name} (exit status {OF_TIMEOUT}) after {case.outcome.duration_s:.0f} s; {where}",
        cites=("exit", *ids),
        confidence=Confidence.HIGH if match is None else Confidence.PROOF,
        names=_names(case, ids),
    )


def _names(case: Case, ids: Sequence[EvidenceId]) -> tuple[str, ...]:
    for sample in case.evidence.stacks:
        thread = deciding_thread(sample) if sample.id in ids else None
        if thread is not None:
            return stack_names(thread)
    return ()


def _of_cpu(case: Case, look: ProcessState, name: str) -> Verdict:
    ago_s = case.outcome.duration_s - look.t_s
    return conclude(
        case,
        Kind.CRASH,
        cause="cpu-limit",
        because=f"ended by {name} at its own limit of CPU time ({look.cpu_limit_s:.0f} s, `ulimit -t`), {place(case)}: "
        f"process {in_words(look.pid)} had used {look.cpu_s:.1f} s {ago_s:.1f} s before",
        cites=("exit", look.id),
        confidence=Confidence.HIGH,
        names=(),
    )


def _at_its_cpu_limit(case: Case) -> ProcessState | None:
    """The last look at a process that may have come to its limit of CPU time by the end; None where none may."""
    for look in reversed(case.evidence.processes):
        running = sum(thread.state == "R" for thread in look.threads)
        reach_s = look.cpu_s + running * (case.outcome.duration_s - look.t_s) + LATE_S
        if look.cpu_limit_s is not None and look.cpu_limit_s <= reach_s:
            return look
    return None
