"""The last rule: it always fires, never guesses, and says what speaks for slow, what for stuck, what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.classify.facts import PATIENCE, conclude, silence, silent_too_long, stopped_by_limit, watched_out
from harness.classify.frames import distinct, identical, native_samples, silent_samples, spell
from harness.classify.motion import motion
from harness.classify.rules.hung_busy import LONGER, healthy_silence_s, is_busy
from harness.core.stacks import deciding_thread, telling_frame
from harness.core.verdict import Confidence, Kind

if TYPE_CHECKING:
    from harness.classify.motion import Motion
    from harness.core.evidence import StackSample
    from harness.core.verdict import Case, Verdict


COMPILERS = ("cc1", "g++", "gcc", "clang", "c++", "as (", "ld (", "collect2", "nvcc", "cicc", "ptxas", "cudafe")
"""Names of processes that compile; their beginnings, as the kernel shows them."""

THRASH_PER_S = 20_000.0
"""Page faults a second beyond any healthy step that was measured (9,500); a page that comes and goes makes 250,000."""


def unresolved(case: Case) -> Verdict:
    """UNRESOLVED, with what an undecided case is like and what would decide it."""
    moved, samples = motion(case), silent_samples(case)
    cause = _cause(case, moved, samples)
    parts = [silence(case) if stopped_by_limit(case) else _ending(case)]
    parts += _groups(case, moved, samples)
    return conclude(
        case,
        Kind.UNRESOLVED,
        rule="unresolved",
        cause=cause,
        because="; ".join(parts),
        cites=(*(s.id for s in samples), *(moved.ids if moved else ()), *_failures(case), "progress", "exit"),
        confidence=Confidence.LOW,
    )


def _cause(case: Case, moved: Motion | None, samples: tuple[StackSample, ...]) -> str:
    if not stopped_by_limit(case):
        return "unknown-ending"
    if not silent_too_long(case):
        return "cut-off-in-silence"
    if moved is None or not samples:
        return "not-seen"
    if moved.asleep and (moved.others_may_move or not moved.others_still):
        return "compile-stall" if moved.others_may_move.startswith(COMPILERS) else "waits-for-child"
    if moved.asleep and moved.main_timed:
        return "timed-wait"
    if is_busy(moved):
        return "page-thrash" if moved.faults > THRASH_PER_S * moved.seconds else "busy"
    return "polling" if moved.main_timed else "undecided"


def _groups(case: Case, moved: Motion | None, samples: tuple[StackSample, ...]) -> list[str]:
    sides = (
        ("for slow", _for_slow(moved, samples)),
        ("for stuck", _for_stuck(case, moved, samples)),
        ("missing", _missing(case, moved, samples)),
    )
    return [f"{name}: {', '.join(found)}" for name, found in sides if found]


def _for_slow(moved: Motion | None, samples: tuple[StackSample, ...]) -> list[str]:
    found: list[str] = []
    if moved is not None and is_busy(moved):
        found.append(f"{moved.cpu_s:.1f} s CPU in {moved.seconds:.1f} s")
    if moved is not None and not is_busy(moved) and not moved.asleep:
        found.append(f"woken {moved.switches} times in {moved.seconds:.1f} s, {moved.cpu_s:.2f} s CPU")
    if moved is not None and not moved.counters_still:
        found.append(f"{moved.faults} page faults, {moved.rss_bytes / 1e6:+.1f} MB, {moved.io_bytes} bytes of I/O")
    native = native_samples(samples)
    if distinct(native) > 1:
        found.append(f"{distinct(native)} different native stacks in {len(native)} samples")
    if moved is not None and moved.others_cpu_s is not None and not moved.others_still:
        found.append(f"its other processes used {moved.others_cpu_s:.1f} s CPU")
    if moved is not None and moved.others_may_move:
        found.append(f"another of its processes may move: {moved.others_may_move}")
    if moved is not None and moved.asleep and moved.main_timed:
        found.append("it sleeps on a timer, which ends by itself")
    return found


def _for_stuck(case: Case, moved: Motion | None, samples: tuple[StackSample, ...]) -> list[str]:
    found: list[str] = []
    if moved is not None and moved.asleep:
        found.append(f"all {moved.threads} threads slept at {moved.looks} of {moved.looks} looks")
    if len(samples) >= 2 and identical(samples):
        thread = deciding_thread(samples[-1])
        where = spell(telling_frame(thread)) if thread else "nowhere"
        weak = "" if len(native_samples(samples)) >= 2 else " (Python frames only, which proves nothing)"
        found.append(f"{len(samples)} of {len(samples)} stacks are the same, in {where}{weak}")
    yardstick = healthy_silence_s(case)
    if yardstick is not None and case.evidence.silence_s > LONGER * yardstick[0]:
        found.append(f"the longest healthy silence is {yardstick[0]:.2f} s ({yardstick[1]})")
    return found


def _missing(case: Case, moved: Motion | None, samples: tuple[StackSample, ...]) -> list[str]:
    if not stopped_by_limit(case):
        return []
    found: list[str] = []
    if moved is None:
        found.append("two undisturbed looks at /proc during the silence")
    elif moved.children and moved.others_cpu_s is None:
        found.append(f"a look at its {moved.children} child process(es)")
    if len(samples) < 2:
        why = "; ".join(f"{f.source}: {f.reason}" for f in case.evidence.failures)
        found.append(f"two stacks{f' ({why})' if why else ''}")
    elif len(native_samples(samples)) < 2:
        found.append("two stacks with native frames")
    if healthy_silence_s(case) is None:
        found.append("a prediction, or the same phase in an earlier step, to hold the silence against")
    if not watched_out(case):
        found.append(f"a silence of {PATIENCE:.0f} times its limit")
    return found


def _failures(case: Case) -> tuple[str, ...]:
    return tuple(failure.id for failure in case.evidence.failures)


def _ending(case: Case) -> str:
    outcome = case.outcome
    return f"no rule knows this ending: {outcome.ending.value}, exit {outcome.exit}, {outcome.why or 'no reason given'}"
