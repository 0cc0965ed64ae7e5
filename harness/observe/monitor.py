"""The watch: follows a running trial until it ends, or ends it when one of its limits runs out.

Nothing is ended before it was examined. A silent process in which nothing moves is ended at once, and if nothing
outside it could wake it either, without waiting for its limit; one that still moves is watched on to four times the
limit, its last samples taken by then. Where the user set no limit, a silence out of all proportion to the trial's own
pace may be enough. What the samples mean is for ``classify`` to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.outcome import Cleanup, Ending, Outcome, StopReason
from harness.core.pace import busy_patience_s, still_patience_s
from harness.core.world import world_of
from harness.observe.certainty import SAMPLES, stays
from harness.observe.devices.devices import Devices
from harness.observe.examiner import BETWEEN_SAMPLES_S, LONGEST_POLL_S, SETTLE_S, Event, Examiner, Stop
from harness.observe.gather import word_of
from harness.observe.proc import Proc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.core.evidence import Evidence
    from harness.core.ports import Clock, Decided, Handle, StackSource, Watched
    from harness.core.trial import Limit, Trial
    from harness.observe.sampler import ProcessView

SHORTEST_POLL_S = 0.02
"""How soon it is looked after again at first: 20 ms, then 5 % of its age, five times a second at last."""

SUSPICIOUS_S = 3.0
"""From this silence on, /proc is asked whether anything moves at all; only a standstill is looked into early."""

STANDSTILL_S = 1.0
"""Time over which nothing may have moved before a standstill is looked into."""

WATCH_ON = 4
"""A silent process that still moves is watched on to this many times its limit."""

AFTERMATH_S = 6.0
"""Time that the other ranks have, after one has failed, to end by themselves and say what they miss."""

CLOSING_S = SAMPLES * (SETTLE_S + BETWEEN_SAMPLES_S)
"""How long before the watch ends its last samples are begun: three at most, an undisturbed window after each."""

DECIDING_S = STANDSTILL_S + CLOSING_S
"""The same before a silence is out of proportion to the trial's pace, which is asked of /proc alone at first."""

DECIDING_BUSY_S = DECIDING_S + 1.5
"""The same of what computes: all three samples show native frames, and it competes for the cores with its dumper."""

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


class _Watch(Examiner):
    # -- the loop

    def run(self) -> tuple[Outcome, Evidence]:
        stop: Stop | None = None
        while stop is None:
            event = self.look_after()
            if event is Event.EXIT:
                break
            if event is Event.INTERRUPT:
                stop = Stop(StopReason.INTERRUPT, "the user asked to stop")
            elif self.age_s() >= self.trial.budget.total.seconds:
                stop = self.total_limit()
            elif (stop := self.aftermath() or self.silence_limit()) is None:
                self.tell()
                self.clock.sleep(min(max(0.05 * self.age_s(), SHORTEST_POLL_S), LONGEST_POLL_S))
        return self.finish(stop)

    # -- the limits

    def silence_limit(self) -> Stop | None:
        """Examine a silence that has become too long; the decision to end it, or None to watch on."""
        limit, reason = self.limit()
        # To look into a standstill takes seconds.
        if (stop := self.beyond_pace(reason) or self.standstill(limit) or self.beyond_pace(reason)) is not None:
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
        if seen is not Event.NOTHING:
            return seen if isinstance(seen, Stop) else None
        verdict = self.certainty()
        said = f"silent for {self.silence_s():.1f} s (limit {limit.seconds:g} s, {limit.source}); {verdict.because}"
        if verdict.certain or last:
            return Stop(reason, said)
        if why := self.decided_by_now(reason):
            return Stop(reason, f"decided by what was seen so far: {why}")
        self.next_round = min(max(int(self.silence_s() / limit.seconds), self.next_round) + 1, WATCH_ON)
        return None

    def close(self, watched_s: float, *, reason: StopReason) -> Event | Stop:
        """One more sample while the watch runs out, or a look when it has; undisturbed time comes before both.

        What was taken by the end may decide. If it does not, one more examination follows before the trial is ended.
        """
        rest_s = self.sampled_s + BETWEEN_SAMPLES_S - self.clock.now()
        event = self.wait(min(rest_s, watched_s - self.silence_s() + SETTLE_S))
        if event is not Event.NOTHING:
            return event
        if self.silence_s() < watched_s:
            return self.examine(samples=1, reason=reason)
        self.sampler.look()
        self.closed = True
        return event

    def beyond_pace(self, reason: StopReason) -> Stop | None:
        """End a trial whose silence is out of proportion to its own pace, if all that was seen makes that a hang.

        One that moves is not disturbed before the longer patience that is due to what computes.
        """
        if reason is not StopReason.STALL:
            return None
        pace, last = self.beats.pace(), self.beats.last
        still_s, busy_s = (ask(pace, last, self.trial) for ask in (still_patience_s, busy_patience_s))
        for patience_s, begin_s, native in ((still_s, DECIDING_S, False), (busy_s, DECIDING_BUSY_S, True)):
            if patience_s is None or native in self.paced or self.silence_s() < patience_s - begin_s:
                continue
            self.paced.add(native)
            # Who has all samples disturbs nobody any more, and the rules see what they show.
            if self.lacking(native=native) <= 0 or self.rests() is not native:
                return self.decide_at(patience_s, native=native)
        return None

    def lacking(self, *, native: bool) -> int:
        """How many stack samples of this silence some rank lacks; with ``native``, of those that show native frames."""
        seen = [sample for sample in self.sampler.stacks if sample.native or not native]
        return SAMPLES - min((sum(sample.pid == pid for sample in seen) for pid in self.living().values()), default=0)

    def decide_at(self, patience_s: float, *, native: bool) -> Stop | None:
        """Complete the samples while the silence grows to ``patience_s``, and ask then whether it is a hang.

        Before native frames comes one sample without: of several ranks it spares those that wait for another the rest.
        """
        if native and not self.sampler.stacks:
            self.sampler.look()
            self.sampler.dump(native=False)
        for _ in range(self.lacking(native=native)):
            rest_s = self.sampled_s + BETWEEN_SAMPLES_S - self.clock.now()
            if self.wait(rest_s) is not Event.NOTHING:
                return None
            found = self.examine(samples=1, reason=StopReason.PACE)
            if found is not Event.NOTHING:
                return found if isinstance(found, Stop) else None
        if self.wait(patience_s - self.silence_s()) is not Event.NOTHING:
            return None
        self.sampler.look()
        self.ask_recorders()
        why = self.decided_by_now(StopReason.PACE)
        return Stop(StopReason.PACE, f"decided by what was seen so far: {why}") if why else None

    def rests(self) -> bool:
        """Whether nothing at all moves in a second of watching; within another second, what that has shown."""
        if self.clock.now() - self.rested[0] >= STANDSTILL_S:
            self.sampler.look()
            event = self.wait(STANDSTILL_S)
            self.sampler.look()
            self.rested = self.clock.now(), event is Event.NOTHING and self.sampler.stands_still()
        return self.rested[1]

    def standstill(self, limit: Limit) -> Stop | None:
        """End a trial before its limit when it stands still so completely that no limit could matter.

        Asked again each time the silence has doubled, and of /proc alone unless nothing at all moves: a healthy trial
        that is merely slow is not disturbed by it. Several ranks may move and be known all the same never to meet.
        """
        if not self.under_way() or not self.suspect_at_s <= self.silence_s() < limit.seconds:
            return None
        self.suspect_at_s = 2 * self.silence_s()
        if not self.rests() and not self.apart():
            return None
        seen = self.examine(samples=SAMPLES, reason=StopReason.CERTAIN)
        if seen is not Event.NOTHING:
            return seen if isinstance(seen, Stop) else None
        # Looking takes seconds on a busy machine: the limit may have passed meanwhile.
        over = self.silence_s() >= limit.seconds
        verdict = self.certainty(alone=not over)
        if not verdict.certain:
            return None
        waited = limit.source if over else "not waited for"
        said = f"silent for {self.silence_s():.1f} s (limit {limit.seconds:g} s, {waited}); {verdict.because}"
        return Stop(self.limit()[1] if over else StopReason.CERTAIN, said)

    def apart(self) -> bool:
        """Whether the ranks of a job that moves can never meet: inside NCCL a rank that waits burns a core.

        Nobody is stopped or signalled for that, and the recorders are asked only when every rank was in the same place
        in two samples.
        """
        if world_of(self.trial.config) < 2:
            return False
        for number in (1, 2):
            self.tell(note=f"silent for {self.silence_s():.1f} s: stacks of all ranks, {number} of 2")
            self.sampler.look()
            self.devices.look(self.job())
            self.sampler.dump(native=False, gently=True)
            if self.wait(SETTLE_S if number > 1 else BETWEEN_SAMPLES_S) is not Event.NOTHING:
                return False
        if not stays(ranks=self.living(), stacks=self.sampler.stacks):
            return False
        self.ask_recorders()
        return self.told_apart()

    def under_way(self) -> bool:
        """Whether its processes are known: by their marks, or because every rank of several is there."""
        world = world_of(self.trial.config)
        return self.beats.last is not None or (world > 1 and len(self.living()) == world)

    def aftermath(self) -> Stop | None:
        """Examine and end the ranks that are left some time after one has failed; None while they may still speak."""
        left = self.living()
        failed = min((end for end in self.ranks.ended.values() if end.failed), key=lambda end: end.t_s, default=None)
        if failed is None or not self.ranks.pids or not left:
            return None
        quiet_s = self.age_s() - max(failed.t_s, self.beats.last_t_s)
        if quiet_s < AFTERMATH_S or self.examine(samples=SAMPLES) is not Event.NOTHING:
            return None
        rank = next(rank for rank, end in self.ranks.ended.items() if end is failed)
        names = ", ".join(map(str, sorted(left)))
        said = f"rank {rank} ended ({failed}) at {failed.t_s:.1f} s; rank {names} did not move on for {quiet_s:.1f} s"
        return Stop(StopReason.CERTAIN, said)

    def total_limit(self) -> Stop | None:
        """Examine a trial whose time is up, then end it; None when it ended by itself meanwhile."""
        limit, self.time_is_up = self.trial.budget.total, True
        event = self.examine(samples=1 if len(self.sampler.stacks) >= SAMPLES else SAMPLES)
        if event is Event.EXIT:
            return None
        if event is Event.INTERRUPT:
            return Stop(StopReason.INTERRUPT, "the user asked to stop")
        last = f"last sign of progress {self.silence_s():.1f} s before"
        why = f"it ran for {self.age_s():.1f} s (limit {limit.seconds:g} s, {limit.source}), {last}"
        return Stop(StopReason.TOTAL, why)

    def limit(self) -> tuple[Limit, StopReason]:
        """The limit that silence is held against now: ending, like starting, may take long and is not training."""
        finished = 0 < self.steps_wanted <= self.beats.steps_done
        if self.beats.first_step_t_s is None or finished:
            return self.trial.budget.startup, StopReason.STARTUP
        return self.trial.budget.stall, StopReason.STALL

    # -- the end

    def finish(self, stop: Stop | None) -> tuple[Outcome, Evidence]:
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

    def outcome(self, stop: Stop | None, *, cleanup: Cleanup, duration_s: float) -> Outcome:
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
