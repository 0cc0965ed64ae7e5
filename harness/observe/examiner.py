"""Follows a running trial and looks at it, closely when asked to; what follows from that is for the watch to decide."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from harness.core.outcome import Ending, Exit, Outcome, StopReason
from harness.core.ports import WatchedJob
from harness.core.services import with_services
from harness.core.world import world_of
from harness.observe.answers import steps_wanted
from harness.observe.certainty import nobody_moves
from harness.observe.devices.certain import never_meet, told_apart
from harness.observe.gather import Sources, gather, word_of
from harness.observe.heartbeat import Heartbeats
from harness.observe.oom import OomKills
from harness.observe.progress import Taps
from harness.observe.ranks import Ranks
from harness.observe.sampler import ProcessView, Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from harness.core.evidence import Evidence, WorkerResult
    from harness.core.ports import Clock, Decided, Handle, StackSource, Watched
    from harness.core.trial import Trial
    from harness.observe.certainty import Certainty
    from harness.observe.devices.devices import Devices

LONGEST_POLL_S = 0.2
"""How long nobody looks after the trial at most."""

SETTLE_S = 0.1
"""Time after a stack dump before /proc is looked at again: threads that the dump woke have gone back to sleep."""

BETWEEN_SAMPLES_S = 1.1
"""Undisturbed time between two stack samples."""


class Event(Enum):
    """What made the watch stop waiting."""

    NOTHING = auto()
    PROGRESS = auto()
    EXIT = auto()
    INTERRUPT = auto()


@dataclass(frozen=True, slots=True)
class Stop:
    """The decision to end the trial, and its reason."""

    reason: StopReason
    why: str


class Examiner:
    """One trial as the watch sees it: what it said, how long it has been silent, what every look at it showed.

    ``next_round``, ``closed``, ``suspect_at_s`` and ``paced`` say how far the present silence has been looked into:
    they begin anew with every sign of progress. ``rested`` is when all of it was last watched for a second, and whether
    it stood still. Once ``time_is_up``, progress interrupts no examination.
    """

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
        self.paced: set[bool] = set()
        self.rested = started_s - math.inf, False
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

    # -- the trial goes on

    def read(self) -> bool:
        """Catch up with what it says; True when there was progress."""
        self.taps.poll()
        self.ranks.read()
        return self.beats.read()

    def look_after(self) -> Event:
        """Catch up with the trial: its end, its marks, its memory, the user."""
        self.exit = self.exit or self.handle.poll()
        progressed = self.read()
        if progressed and not self.time_is_up:
            self.sampler.progress()
            self.next_round, self.closed, self.suspect_at_s = 1, False, self.suspicious_s
            self.paced.clear()
        if self.exit is not None:
            return Event.EXIT
        self.peak_rss_bytes = max(self.peak_rss_bytes, *map(self.view.peak_rss_bytes, self.living().values()), 0)
        if self.interrupted():
            return Event.INTERRUPT
        return Event.PROGRESS if progressed else Event.NOTHING

    def examine(self, *, samples: int, reason: StopReason | None = None) -> Event | Stop:
        """Take stack samples with undisturbed windows between them; stops at whatever happens first.

        The first of several samples leaves the process alone, the others show native frames. Progress does not stop
        it once the trial's time is up. With a ``reason`` to end it, it is ended as soon as no further sample could
        matter.
        """
        event = Event.NOTHING
        for number in range(1, samples + 1):
            cause = "its time is up" if self.time_is_up else f"silent for {self.silence_s():.1f} s"
            self.tell(note=f"{cause}: stack sample {number} of {samples}")
            self.sampler.look()
            self.devices.look(self.job())
            self.sampler.dump(native=number > 1 or samples == 1)
            if reason is not None and number < samples and (stop := self.contradicted(reason, asked=number > 1)):
                return stop
            event = self.wait(SETTLE_S)
            if event is not Event.NOTHING:
                break
            self.sampler.look()
            event = self.wait(BETWEEN_SAMPLES_S if number < samples else 0)
            if event is not Event.NOTHING:
                break
        self.sampled_s = self.clock.now()
        return event

    def wait(self, seconds: float) -> Event:
        """Let ``seconds`` pass while looking after the trial."""
        until = self.clock.now() + seconds
        while True:
            event = self.look_after()
            if event in (Event.EXIT, Event.INTERRUPT) or (event is Event.PROGRESS and not self.time_is_up):
                return event
            if (left := until - self.clock.now()) <= 0:
                return Event.NOTHING
            self.clock.sleep(min(left, LONGEST_POLL_S))

    def certainty(self, *, alone: bool = False) -> Certainty:
        """Whether it is known by now that no rank will make progress."""
        looks, stacks, ranks = self.sampler.looks, self.sampler.stacks, self.living()
        if len(ranks) > 1:
            looks = with_services(looks, stacks)
        verdict = nobody_moves(ranks=ranks, looks=looks, stacks=stacks, alone=alone)
        world = world_of(self.trial.config)
        if verdict.certain or world < 2:
            return verdict
        self.ask_recorders()
        parted = never_meet(ranks=ranks, stacks=stacks, collectives=self.devices.collectives, world=world)
        return parted if parted.certain else verdict

    def contradicted(self, reason: StopReason, *, asked: bool) -> Stop | None:
        """End a job of several ranks of which the flight recorders say already that they can never meet.

        They answer in a fraction of the time that native frames take. ``asked`` says that they have been, of this
        silence: what stands still hands nothing over to them.
        """
        if not asked:
            self.ask_recorders()
        # Other rules may take a standstill for certain that is still being looked into.
        if not self.told_apart() or not (why := self.decided_by_now(reason)):
            return None
        return Stop(reason, f"decided by what was seen so far: {why}")

    def ask_recorders(self) -> None:
        """Have the flight recorders of several ranks tell what they hold, from inside the processes."""
        if world_of(self.trial.config) > 1:
            self.devices.dump(self.job())
            self.sampler.disturbed()

    def told_apart(self) -> bool:
        """Whether by what the recorders have told the ranks can never meet."""
        world = world_of(self.trial.config)
        held = self.devices.collectives
        stacks = self.sampler.stacks
        return world > 1 and told_apart(ranks=self.living(), stacks=stacks, collectives=held, world=world)

    def decided_by_now(self, reason: StopReason) -> str:
        """Why what was seen so far suffices for a verdict, or nothing."""
        seconds = self.age_s()
        ended = Outcome(ending=Ending.STOPPED_BY_US, stopped_by=reason, duration_s=seconds)
        left = {rank: word_of(rank, trial_dir=self.trial_dir) for rank in self.living()}
        return self.decided(ended, self.evidence(silence_s=self.silence_s(), duration_s=seconds, left=left))

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

    def evidence(self, *, silence_s: float, duration_s: float, left: Mapping[int, WorkerResult | None]) -> Evidence:
        """Everything that was seen; ``left`` are the ranks that we ended, with what they had said before."""
        return gather(
            self.sources,
            silence_s=silence_s,
            duration_s=duration_s,
            peak_rss_bytes=self.peak_rss_bytes,
            left=left,
        )

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
