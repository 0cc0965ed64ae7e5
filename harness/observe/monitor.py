"""The watch: follows a running trial until it ends, or ends it when one of its limits runs out.

Nothing is ended before it was examined. A silent process in which nothing moves is ended at once, and if nothing
outside it could wake it either, without waiting for its limit; one that still moves is watched on to four times the
limit, its last samples taken by then. What the samples mean is for ``classify`` to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from harness.core.outcome import Cleanup, Ending, Exit, Outcome, StopReason
from harness.core.ports import WatchedJob
from harness.core.services import with_services
from harness.core.world import world_of
from harness.observe.answers import steps_wanted
from harness.observe.certainty import SAMPLES, nobody_moves
from harness.observe.devices.certain import never_meet, told_apart
from harness.observe.devices.devices import Devices
from harness.observe.gather import Sources, gather, word_of
from harness.observe.heartbeat import Heartbeats
from harness.observe.oom import OomKills
from harness.observe.proc import Proc
from harness.observe.progress import Taps
from harness.observe.ranks import Ranks
from harness.observe.sampler import ProcessView, Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from harness.core.evidence import Evidence, WorkerResult
    from harness.core.ports import Clock, Decided, Handle, StackSource, Watched
    from harness.core.trial import Limit, Trial
    from harness.observe.certainty import Certainty

SHORTEST_POLL_S, LONGEST_POLL_S = 0.02, 0.2
"""How often the trial is looked after: 20 ms at first, 5 % of its age later, five times a second at last."""

SUSPICIOUS_S = 3.0
"""From this silence on, /proc is asked whether anything moves at all; only a standstill is looked into early."""

STANDSTILL_S = 1.0
"""Time over which nothing may have moved before a standstill is looked into."""

WATCH_ON = 4
"""A silent process that still moves is watched on to this many times its limit."""

AFTERMATH_S = 6.0
"""Time that the other ranks have, after one has failed, to end by themselves and say what they miss."""

SETTLE_S = 0.1
"""Time after a stack dump before /proc is looked at again: threads that the dump woke have gone back to sleep."""

BETWEEN_SAMPLES_S = 1.1
"""Undisturbed time between two stack samples."""

CLOSING_S = SAMPLES * (SETTLE_S + BETWEEN_SAMPLES_S)
"""How long before the watch ends its last samples are begun: three at most, an undisturbed window after each."""

GRACE_S = 3.0
"""Time between TERM and KILL when a trial is ended."""


def watch(
    *,
    handle: Handle,
    trial: Trial,
    trial_dir: Path,
    clock: Clock,
    sources: Sequence[StackSource],
    progress: Watched | None,
    started_s: float,
    interrupted: Callable[[], bool],
    view: ProcessView | None = None,
    devices: Devices | None = None,
    decided: Decided = lambda *_: "",
    suspicious_s: float = SUSPICIOUS_S,
) -> tuple[Outcome, Evidence]:
    """Watch ``trial`` to its end and leave nothing of it running.

    ``started_s`` is ``clock.now()`` at its start. ``progress`` is told at every look how the trial stands:
    ``elapsed_s silence_s steps_done steps_wanted phase step``, and a ``note`` when there is news. ``view`` stands
    for /proc in tests. ``devices`` see GPUs and communicators; None sees none.
    ``decided`` is asked after each examination, with what was seen so far and as if the trial had been ended, whether
    that suffices for a verdict: it says why, or nothing.
    """
    return _Watch(
        handle=handle,
        trial=trial,
        trial_dir=trial_dir,
        clock=clock,
        sources=sources,
        progress=progress,
        started_s=started_s,
        interrupted=interrupted,
        view=view or Proc(),
        devices=devices or Devices(),
        decided=decided,
        suspicious_s=suspicious_s,
    ).run()


class _Event(Enum):
    """What made the watch stop waiting."""

    NOTHING = auto()
    PROGRESS = auto()
    EXIT = auto()
    INTERRUPT = auto()


@dataclass(frozen=True, slots=True)
class _Stop:
    """The decision to end the trial, and its reason."""

    reason: StopReason
    why: str


class _Watch:
    def __init__(
        self,
        *,
        handle: Handle,
        trial: Trial,
        trial_dir: Path,
        clock: Clock,
        sources: Sequence[StackSource],
        progress: Watched | None,
        started_s: float,
        interrupted: Callable[[], bool],
        view: ProcessView,
        devices: Devices,
        decided: Decided,
        suspicious_s: float,
    ) -> None:
        self.handle, self.trial, self.trial_dir, self.clock = handle, trial, trial_dir, clock
        self.progress, self.started_s, self.interrupted, self.view = progress, started_s, interrupted, view
        self.suspicious_s, self.devices, self.decided = suspicious_s, devices, decided
        self.beats = Heartbeats(trial_dir, started_s=started_s)
        self.ranks = Ranks(trial_dir, started_s=started_s)
        self.taps = Taps(trial, trial_dir=trial_dir, clock=clock, pid=handle.pid)
        self.sampler = Sampler(
            handle=handle,
            trial_dir=trial_dir,
            clock=clock,
            started_s=started_s,
            sources=sources,
            view=view,
            ranks=self.living,
        )
        self.steps_wanted = steps_wanted(trial)
        self.exit: Exit | None = None
        self.peak_rss_bytes = 0
        self.next_round = 1
        self.closed = False
        self.sampled_s = started_s
        self.time_is_up = False
        self.suspect_at_s = suspicious_s
        self.sources = Sources(
            trial=trial,
            trial_dir=trial_dir,
            beats=self.beats,
            ranks=self.ranks,
            sampler=self.sampler,
            devices=devices,
            oom_kills=OomKills(handle.pid),
        )

    # -- the loop

    def run(self) -> tuple[Outcome, Evidence]:
        stop: _Stop | None = None
        while stop is None:
            event = self.look_after()
            if event is _Event.EXIT:
                break
            if event is _Event.INTERRUPT:
                stop = _Stop(StopReason.INTERRUPT, "the user asked to stop")
            elif self.age_s() >= self.trial.budget.total.seconds:
                stop = self.total_limit()
            elif (stop := self.aftermath() or self.silence_limit()) is None:
                self.tell()
                self.clock.sleep(min(max(0.05 * self.age_s(), SHORTEST_POLL_S), LONGEST_POLL_S))
        return self.finish(stop)

    def read(self) -> bool:
        """Catch up with what it says; True when there was progress."""
        self.taps.poll()
        self.ranks.read()
        return self.beats.read()

    def look_after(self) -> _Event:
        """Catch up with the trial: its end, its marks, its memory, the user."""
        self.exit = self.exit or self.handle.poll()
        progressed = self.read()
        if progressed and not self.time_is_up:
            self.sampler.progress()
            self.next_round, self.closed, self.suspect_at_s = 1, False, self.suspicious_s
        if self.exit is not None:
            return _Event.EXIT
        self.peak_rss_bytes = max(self.peak_rss_bytes, *map(self.view.peak_rss_bytes, self.living().values()), 0)
        if self.interrupted():
            return _Event.INTERRUPT
        return _Event.PROGRESS if progressed else _Event.NOTHING

    # -- the limits

    def silence_limit(self) -> _Stop | None:
        """Examine a silence that has become too long; the decision to end it, or None to watch on."""
        limit, reason = self.limit()
        if (stop := self.standstill(limit)) is not None:
            return stop
        if self.silence_s() < limit.seconds / 2:
            return None
        if not self.sampler.looks:
            # The first look of a long undisturbed window: what a process does by itself shows best before any dump.
            self.sampler.look()
        watched_s = WATCH_ON * limit.seconds
        closing = self.next_round > 1 and not self.closed and self.silence_s() >= watched_s - CLOSING_S
        if not closing and self.silence_s() < limit.seconds * self.next_round:
            return None
        last = self.closed
        if closing:
            seen = self.close(watched_s, reason=reason)
        else:
            seen = self.examine(samples=SAMPLES if last or self.next_round == 1 else 1, reason=reason)
        if seen is not _Event.NOTHING:
            return seen if isinstance(seen, _Stop) else None
        verdict = self.certainty()
        said = f"silent for {self.silence_s():.1f} s (limit {limit.seconds:g} s, {limit.source}); {verdict.because}"
        if verdict.certain or last:
            return _Stop(reason, said)
        if why := self.decided_by_now(reason):
            return _Stop(reason, f"decided by what was seen so far: {why}")
        self.next_round = min(max(int(self.silence_s() / limit.seconds), self.next_round) + 1, WATCH_ON)
        return None

    def close(self, watched_s: float, *, reason: StopReason) -> _Event | _Stop:
        """One more sample while the watch runs out, or a look when it has; undisturbed time comes before both.

        What was taken by the end may decide. If it does not, one more examination follows before the trial is ended.
        """
        rest_s = self.sampled_s + BETWEEN_SAMPLES_S - self.clock.now()
        event = self.wait(min(rest_s, watched_s - self.silence_s() + SETTLE_S))
        if event is not _Event.NOTHING:
            return event
        if self.silence_s() < watched_s:
            return self.examine(samples=1, reason=reason)
        self.sampler.look()
        self.closed = True
        return event

    def standstill(self, limit: Limit) -> _Stop | None:
        """End a trial before its limit when it stands still so completely that no limit could matter.

        Asked again each time the silence has doubled, and of /proc alone unless nothing at all moves: a healthy trial
        that is merely slow is not disturbed by it.
        """
        if self.beats.last is None or not self.suspect_at_s <= self.silence_s() < limit.seconds:
            return None
        self.suspect_at_s = 2 * self.silence_s()
        self.sampler.look()
        event = self.wait(STANDSTILL_S)
        self.sampler.look()
        if event is not _Event.NOTHING or not self.sampler.stands_still():
            return None
        seen = self.examine(samples=SAMPLES, reason=StopReason.CERTAIN)
        if seen is not _Event.NOTHING:
            return seen if isinstance(seen, _Stop) else None
        # Looking takes seconds on a busy machine: the limit may have passed meanwhile.
        over = self.silence_s() >= limit.seconds
        verdict = self.certainty(alone=not over)
        if not verdict.certain:
            return None
        waited = limit.source if over else "not waited for"
        said = f"silent for {self.silence_s():.1f} s (limit {limit.seconds:g} s, {waited}); {verdict.because}"
        return _Stop(self.limit()[1] if over else StopReason.CERTAIN, said)

    def aftermath(self) -> _Stop | None:
        """Examine and end the ranks that are left some time after one has failed; None while they may still speak."""
        left = self.living()
        failed = min((end for end in self.ranks.ended.values() if end.failed), key=lambda end: end.t_s, default=None)
        if failed is None or not self.ranks.pids or not left:
            return None
        quiet_s = self.age_s() - max(failed.t_s, self.beats.last_t_s)
        if quiet_s < AFTERMATH_S or self.examine(samples=SAMPLES) is not _Event.NOTHING:
            return None
        rank = next(rank for rank, end in self.ranks.ended.items() if end is failed)
        names = ", ".join(map(str, sorted(left)))
        said = f"rank {rank} ended ({failed}) at {failed.t_s:.1f} s; rank {names} did not move on for {quiet_s:.1f} s"
        return _Stop(StopReason.CERTAIN, said)

    def total_limit(self) -> _Stop | None:
        """Examine a trial whose time is up, then end it; None when it ended by itself meanwhile."""
        limit, self.time_is_up = self.trial.budget.total, True
        event = self.examine(samples=1 if len(self.sampler.stacks) >= SAMPLES else SAMPLES)
        if event is _Event.EXIT:
            return None
        if event is _Event.INTERRUPT:
            return _Stop(StopReason.INTERRUPT, "the user asked to stop")
        last = f"last sign of progress {self.silence_s():.1f} s before"
        why = f"it ran for {self.age_s():.1f} s (limit {limit.seconds:g} s, {limit.source}), {last}"
        return _Stop(StopReason.TOTAL, why)

    def limit(self) -> tuple[Limit, StopReason]:
        """The limit that silence is held against now: ending, like starting, may take long and is not training."""
        finished = 0 < self.steps_wanted <= self.beats.steps_done
        if self.beats.first_step_t_s is None or finished:
            return self.trial.budget.startup, StopReason.STARTUP
        return self.trial.budget.stall, StopReason.STALL

    def contradicted(self, reason: StopReason, *, asked: bool) -> _Stop | None:
        """End a job of several ranks of which the flight recorders say already that they can never meet.

        They answer in a fraction of the time that native frames take. ``asked`` says that they have been, of this
        silence: what stands still hands nothing over to them.
        """
        if world_of(self.trial.config) < 2:
            return None
        if not asked:
            self.devices.dump(self.job())
            self.sampler.disturbed()  # a recorder answers from inside the process
        apart = told_apart(
            ranks=self.living(),
            stacks=self.sampler.stacks,
            collectives=self.devices.collectives,
            world=world_of(self.trial.config),
        )
        # Other rules may take a standstill for certain that is still being looked into.
        if not apart or not (why := self.decided_by_now(reason)):
            return None
        return _Stop(reason, f"decided by what was seen so far: {why}")

    def decided_by_now(self, reason: StopReason) -> str:
        """Why what was seen so far suffices for a verdict, or nothing."""
        seconds = self.age_s()
        ended = Outcome(ending=Ending.STOPPED_BY_US, stopped_by=reason, duration_s=seconds)
        left = {rank: word_of(rank, trial_dir=self.trial_dir) for rank in self.living()}
        return self.decided(ended, self.evidence(silence_s=self.silence_s(), duration_s=seconds, left=left))

    # -- looking closely

    def living(self) -> dict[int, int]:
        """The PID of every rank that has not ended; of a single process, its own."""
        known = {number: rank.pid for number, rank in self.beats.ranks.items()} | self.ranks.pids
        left = {rank: pid for rank, pid in sorted(known.items()) if rank not in self.ranks.ended}
        return left if known else {0: self.handle.pid}

    def job(self) -> WatchedJob:
        """The trial as those need it who look at its devices."""
        return WatchedJob(
            ranks=self.living(),
            pids=frozenset(ref.pid for ref in self.handle.processes()),
            world=world_of(self.trial.config),
            trial_dir=self.trial_dir,
            t_s=self.age_s(),
        )

    def certainty(self, *, alone: bool = False) -> Certainty:
        """Whether it is known by now that no rank will make progress."""
        looks, stacks, ranks = self.sampler.looks, self.sampler.stacks, self.living()
        if len(ranks) > 1:
            looks = with_services(looks, stacks)
        verdict = nobody_moves(ranks=ranks, looks=looks, stacks=stacks, alone=alone)
        world = world_of(self.trial.config)
        if verdict.certain or world < 2:
            return verdict
        self.devices.dump(self.job())
        self.sampler.disturbed()  # a recorder answers from inside the process
        parted = never_meet(ranks=ranks, stacks=stacks, collectives=self.devices.collectives, world=world)
        return parted if parted.certain else verdict

    def examine(self, *, samples: int, reason: StopReason | None = None) -> _Event | _Stop:
        """Take stack samples with undisturbed windows between them; stops at whatever happens first.

        The first of several samples leaves the process alone, the others show native frames. Progress does not stop
        it once the trial's time is up. With a ``reason`` to end it, it is ended as soon as no further sample could
        matter.
        """
        event = _Event.NOTHING
        for number in range(1, samples + 1):
            cause = "its time is up" if self.time_is_up else f"silent for {self.silence_s():.1f} s"
            self.tell(note=f"{cause}: stack sample {number} of {samples}")
            self.sampler.look()
            self.devices.look(self.job())
            self.sampler.dump(native=number > 1 or samples == 1)
            if reason is not None and number < samples and (stop := self.contradicted(reason, asked=number > 1)):
                return stop
            event = self.wait(SETTLE_S)
            if event is not _Event.NOTHING:
                break
            self.sampler.look()
            event = self.wait(BETWEEN_SAMPLES_S if number < samples else 0)
            if event is not _Event.NOTHING:
                break
        self.sampled_s = self.clock.now()
        return event

    def wait(self, seconds: float) -> _Event:
        """Let ``seconds`` pass while looking after the trial."""
        until = self.clock.now() + seconds
        while True:
            event = self.look_after()
            if event in (_Event.EXIT, _Event.INTERRUPT) or (event is _Event.PROGRESS and not self.time_is_up):
                return event
            if (left := until - self.clock.now()) <= 0:
                return _Event.NOTHING
            self.clock.sleep(min(left, LONGEST_POLL_S))

    # -- the end

    def finish(self, stop: _Stop | None) -> tuple[Outcome, Evidence]:
        """End what is left of the trial and put everything together."""
        self.exit = self.exit or self.handle.poll()
        if self.exit is not None:
            stop = None
        if stop is not None:
            self.tell(note=f"ending it: {stop.why}")
            self.devices.dump(self.job())
        duration_s, silence_s = self.age_s(), self.silence_s()
        # What it says once we have ended it, or one rank of it, is our doing.
        left = {rank: word_of(rank, trial_dir=self.trial_dir) for rank in self.living()} if stop is not None else {}
        if stop is not None:
            self.read()
        cleanup = self.handle.stop(grace_s=GRACE_S, clock=self.clock)
        if stop is None:
            self.read()
        for reader in (self.taps, self.beats, self.ranks):
            reader.close()
        outcome = self.outcome(stop, cleanup=cleanup, duration_s=duration_s)
        return outcome, self.evidence(silence_s=silence_s, duration_s=duration_s, left=left)

    def outcome(self, stop: _Stop | None, *, cleanup: Cleanup, duration_s: float) -> Outcome:
        """How it ended."""
        left = f"; {cleanup.ended} processes that it left behind were ended" if cleanup.ended and not stop else ""
        if stop is not None:
            ending, why = Ending.STOPPED_BY_US, stop.why
        elif self.exit is not None and self.exit.signal is not None:
            ending, why = Ending.SIGNALLED, f"signal {self.exit.signal}{left}"
        elif self.exit is not None and self.exit.code is not None:
            ending, why = Ending.EXITED, f"exit code {self.exit.code}{left}"
        else:
            ending, why = Ending.EXITED, f"its supervisor was lost, and with it how the trial ended{left}"
        return Outcome(
            ending=ending,
            exit=self.exit or self.handle.poll(),
            stopped_by=stop.reason if stop else None,
            duration_s=duration_s,
            cleanup=cleanup,
            why=why,
        )

    def evidence(self, *, silence_s: float, duration_s: float, left: Mapping[int, WorkerResult | None]) -> Evidence:
        """Everything that was seen; ``left`` are the ranks that we ended, with what they had said before."""
        return gather(
            self.sources,
            silence_s=silence_s,
            duration_s=duration_s,
            peak_rss_bytes=self.peak_rss_bytes,
            left=left,
        )

    # -- small change

    def age_s(self) -> float:
        """Seconds since the trial's start."""
        return self.clock.now() - self.started_s

    def silence_s(self) -> float:
        """Seconds since the last sign of progress, or since the start."""
        return max(self.age_s() - self.beats.last_t_s, 0.0)

    def tell(self, *, note: str = "") -> None:
        """Let the user know how the trial stands."""
        if self.progress is None:
            return
        last = self.beats.last
        facts: dict[str, object] = {
            "elapsed_s": self.age_s(),
            "silence_s": self.silence_s(),
            "steps_done": self.beats.steps_done,
            "steps_wanted": self.steps_wanted,
            "phase": last.phase if last else None,
            "step": last.step if last else None,
        }
        self.progress(facts | {"note": note} if note else facts)
