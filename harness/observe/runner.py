"""Carries out what the watch asks for: looks after a trial, looks at it, asks the rules, ends it.

``harness.observe.watch`` says what to do next, ``harness.classify`` what was seen means; here are the clock, the files
and the processes. One runner serves a trial of ours, which is ended, and a job that somebody else started, which is
only watched (``Attached``): for that one nothing is signalled, and nothing ends but the watching.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.core.errors import SpoiledError, raised_at
from harness.core.evidence import SourceFailure
from harness.core.outcome import ASKED, USER_ASKED, Cleanup, Ending, Exit, Outcome, StopReason
from harness.core.ports import WatchedJob
from harness.core.verdict import Kind
from harness.observe.answers import steps_wanted
from harness.observe.census import Census
from harness.observe.gather import gather, word_of
from harness.observe.heartbeat import Heartbeats
from harness.observe.logs import log_tails
from harness.observe.oom import OomKills
from harness.observe.progress import Taps
from harness.observe.ranks import RankEnd, Ranks
from harness.observe.sampler import Native, Sampler
from harness.observe.watch import ACTS, ROUND, Act, State, Step, next_step
from harness.reading import pace
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.core.evidence import Evidence, WorkerResult
    from harness.core.ports import Clock, Handle, Judge, StackSource, Watched
    from harness.core.trial import Trial
    from harness.core.verdict import Verdict
    from harness.observe.devices.devices import Devices
    from harness.observe.proc import Proc

RECORDERS_AT = ACTS.index(Act.RECORDERS)
"""The act of a round after which the flight recorders have been asked."""

ELASTIC = re.compile(r"\btorchrun\b|torch\.distributed\.(run|launch)|accelerate(\.commands\.launch| launch)")
"""Command lines of launchers that end the other ranks themselves when one fails, and may begin all of them anew."""

ELASTIC_S = 32.0
"""After SIGTERM torch's agent waits half a minute, in which a rank may save what it has, before it sends SIGKILL."""

SOON_S = 0.5
"""A limit that is overrun by less needs no word."""

GRACE_S = 3.0
"""Between TERM and KILL when a trial is ended. Its evidence is taken by then; a handler may still save something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eyes:
    """What a trial is looked at with: stack sources, devices, and /proc."""

    sources: Sequence[StackSource]
    devices: Devices
    view: Proc


def never_ends(verdict: Verdict) -> bool:
    """Whether a trial with this verdict can be ended now: it hangs, or has failed and hangs on its way out."""
    return verdict.kind is Kind.HANG or (verdict.kind in (Kind.CRASH, Kind.OOM) and "stalled" in verdict.also)


class Runner:
    """One trial as it is watched: what it said, what every look showed, how far its silence has been looked into.

    ``started_s`` is ``clock.now()`` at its start. ``progress`` is told at every look how the trial stands:
    ``elapsed_s silence_s steps_done steps_wanted phase step looks``, and a ``note`` when there is news. ``judge`` gives
    the verdict on what was seen so far, as if the trial had been ended now. With ``examine`` a silent trial that the
    user interrupts is looked into before it is ended. ``called`` says once that another part of the same trial is being
    looked into. ``rank`` is the rank that the program was told by its environment.
    """

    ending = Ending.STOPPED_BY_US
    """How it would end if the watching ended now."""

    quiet = "silent"
    """What it has been since its last mark."""

    def __init__(
        self,
        *,
        handle: Handle,
        trial: Trial,
        trial_dir: Path,
        clock: Clock,
        eyes: Eyes,
        progress: Watched | None,
        started_s: float,
        interrupted: Callable[[], bool],
        judge: Judge,
        asked: Callable[[], str] = lambda: USER_ASKED,
        examine: bool = False,
        called: Callable[[], bool] = lambda: False,
        rank: int | None = None,
    ) -> None:
        self.examine, self.called, self.asked = examine, called, asked
        self.handle, self.trial, self.trial_dir, self.clock, self.eyes = handle, trial, trial_dir, clock, eyes
        self.progress, self.started_s, self.interrupted, self.judge = progress, started_s, interrupted, judge
        self.census = Census(handle=handle, clock=clock, read=eyes.view.member)
        self.beats = Heartbeats(trial_dir, started_s=started_s, outer=self.census.outer)
        self.ranks = Ranks(trial_dir, started_s=started_s, outer=self.census.outer)
        self.taps = Taps(trial, trial_dir=trial_dir, clock=clock, pid=handle.pid, census=self.census, rank=rank)
        self.sampler = Sampler(
            census=self.census, trial_dir=trial_dir, clock=clock, started_s=started_s, sources=eyes.sources,
            view=eyes.view, ranks=self.living,
        )  # fmt: skip
        self.oom_kills = OomKills(handle.pid)
        self.steps_wanted = steps_wanted(trial)
        self.exit: Exit | None = None
        self.peak_rss_bytes = 0
        self.raised_s: dict[int, float] = {}
        self.verdict: Verdict | None = None
        self.time_is_up = False
        self._absent: set[int] = set()
        self._silent: set[int] = set()
        self._silence_begins()

    def _silence_begins(self) -> None:
        self.round_began_s: float | None = None
        self.position, self.verdict_at_s, self.acted_at_s = 0, 0.0, self.clock.now()

    # -- the loop

    def run(self) -> tuple[Outcome, Evidence]:
        """Follow the watch to its end, whatever that is; nothing of a trial of ours is left running."""
        while True:
            progressed = self.look_after()
            if progressed and not self.time_is_up:
                self.sampler.progress()
                self._silence_begins()
            self.tell()
            step = self.next(self.state())
            if step.act is Act.END:
                return self.finish(step)
            self.carry_out(step)

    def next(self, state: State) -> Step:
        """What to do next about a trial of ours."""
        return next_step(state)

    def look_after(self) -> bool:
        """Catch up with the trial: its end, its marks, its memory; True when there was progress."""
        self.exit = self.exit or self.handle.poll()
        self.taps.poll(self._only_onlookers_ran)
        self.ranks.read()
        progressed = self.beats.read()
        if self.exit is None:
            peaks = map(self.eyes.view.peak_rss_bytes, self.living().values())
            self.peak_rss_bytes = max(self.peak_rss_bytes, *peaks, 0)
        return progressed

    def _only_onlookers_ran(self) -> bool:
        try:
            return self.sampler.only_onlookers_ran()
        except Exception as error:  # noqa: BLE001 - as in carry_out
            self.look_failed(error)
            return False

    def carry_out(self, step: Step) -> None:
        """Do one step, and ask the rules what it has shown; a mistake of ours on the way ends no trial."""
        if step.act is Act.SLEEP:
            self.clock.sleep(step.seconds)
            return
        try:
            self._look(step)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not the trial's
            self.look_failed(error)

    def look_failed(self, error: Exception) -> None:
        """Go on after a mistake of ours, which becomes evidence; the next round begins anew.

        What this silence showed so far is not judged: a process may be missing in it.

        Raises:
            SpoiledError: what the trial has put into its folder would stop whoever reads it.
            Exception: that very error, where the trial's folder is gone.
        """
        if isinstance(error, SpoiledError) or not self.trial_dir.is_dir():
            raise error
        said = f"{type(error).__name__}: {error} ({raised_at(error)})"
        is_news = self.sampler.discard(SourceFailure(id="", source="look", reason=said))
        self.verdict, self.verdict_at_s, self.acted_at_s = None, self.silence_s(), self.clock.now()
        self.position = len(ROUND)
        if is_news:
            self.tell(note=f"a look failed, {said}; the trial goes on, what this silence showed so far is not judged")

    def _look(self, step: Step) -> None:
        if step.begins:
            is_interrupted = self.examine and self.interrupted()
            self.time_is_up = self.time_is_up or is_interrupted or self.age_s() >= self.trial.budget.total.seconds
            self.round_began_s, self.position = self.silence_s(), 0
            cause = f"{self.quiet} for {self.silence_s():.1f} s: " if self.silence_s() >= 1.0 else ""
            cause = "its time is up: " if self.time_is_up else cause
            cause = f"{self.asked()} (again: at once): " if is_interrupted else cause
            self.tell(note=f"{cause}looking into it")
        if step.act is Act.LOOK:
            self.sampler.look()
            self._note_absent_ranks()
            self.eyes.devices.look(self.job())
        elif step.act is Act.DUMP:
            # The first dump of a silence leaves everybody alone, the others take native frames of what stands still.
            gentle = Native.STILL if self.sampler.stacks else Native.NONE
            self.sampler.dump(Native.ALL if step.native else gentle)
        elif step.act is Act.RECORDERS and self.several():
            self.eyes.devices.dump(self.job())
            self.sampler.disturbed()
        if self.round_began_s is not None and self.position < len(ROUND):
            self.position += 1
        self.acted_at_s = self.clock.now()
        # Of several ranks the recorders know what stacks only suggest: the rules are not asked before them.
        has_recorders = not self.several() or self.position > RECORDERS_AT
        # Where no stacks can be had, all that will be seen was seen when the round is over.
        has_stacks = len(self.sampler.stacks) > len(self.living()) or self.position >= len(ROUND)
        if has_recorders and has_stacks:
            self.ask()

    def _note_absent_ranks(self) -> None:
        """A rank of which two looks in a row found no process has ended, though nobody says how."""
        members = self.census.members()
        absent = {rank for rank, pid in self.ranks.pids.items() if pid not in members} - self.ranks.ended.keys()
        absent -= self.census.ranks().keys()  # begun anew, and has not spoken yet
        for rank in absent & self._absent:
            self.ranks.ended[rank] = RankEnd(exit=Exit(), t_s=self.age_s())
            self._silent.add(rank)
        self._absent = absent

    def _forget_absent_ranks(self) -> None:
        """Of a trial that ended by itself its own exit tells how it went, and not that a rank was gone before."""
        for rank in self._silent & self.ranks.ended.keys():  # one that was begun anew is not there
            if self.ranks.ended[rank].exit == Exit():
                del self.ranks.ended[rank]

    def ask(self) -> None:
        """Have the rules judge what was seen so far, as if the trial were ended now."""
        seconds, self.verdict_at_s = self.age_s(), self.silence_s()
        words = self._words()
        evidence = self.evidence(silence_s=self.verdict_at_s, duration_s=seconds, words=words)
        ended = Outcome(ending=self.ending, stopped_by=StopReason.CERTAIN, duration_s=seconds)
        self.verdict = self.judge(ended, evidence)

    def _words(self) -> dict[int, WorkerResult | None]:
        """What each rank that has not ended has said by now."""
        return {rank: word_of(rank, trial_dir=self.trial_dir) for rank in self.living()}

    def state(self) -> State:
        """What the watch has to know."""
        training = self.beats.first_step_t_s is not None and not 0 < self.steps_wanted <= self.beats.steps_done
        hung = self.verdict is not None and never_ends(self.verdict) and self.verdict_at_s > 0.0
        own_pace, last = self.beats.pace(), self.beats.last
        return State(
            age_s=self.age_s(),
            silence_s=self.silence_s(),
            suspicious_s=pace.suspicious_s(own_pace),
            limit_s=pace.silence_limit(self.trial.budget, training=training).seconds,
            limited=StopReason.STALL if training else StopReason.STARTUP,
            total_s=self.trial.budget.total.seconds,
            due_s=(pace.busy_patience_s(own_pace, last, self.trial, training=training), pace.ASKED_S, pace.LOOKED_S),
            round_began_s=self.round_began_s,
            position=self.position,
            rested_s=self.clock.now() - self.acted_at_s,
            several=self.round_began_s is not None and self.several(),  # lists the processes: not at every look
            verdict_at_s=self.verdict_at_s,
            works=self.verdict is not None and self.verdict_at_s > 0.0 and self.verdict.gets_on,
            hang=self.verdict.because if hung and self.verdict is not None else "",
            exited=self.exit is not None,
            interrupted=self.interrupted(),
            examine=self.examine,
            failed_s=self._failed_s(),
            time_is_up=self.time_is_up,
            called=self.called(),
        )

    def _failed_s(self) -> float | None:
        """Seconds since a rank failed, or since the last mark after that; None while none has, or nobody is left.

        Those in which a launcher lets the others end are not counted.
        """
        living = self.living()
        for rank in living.keys() - self.raised_s.keys():
            has_result = len(living) > 1 and layout.result(self.trial_dir, rank).exists()
            result = word_of(rank, trial_dir=self.trial_dir) if has_result else None
            if result is not None and result.status == "raised":
                self.raised_s[rank] = self.age_s()
        if not living or not (self.ranks.pids or len(self.beats.ranks) > 1):
            return None  # the trial's ranks are not known, there is just the one process of it
        begun_s = self.ranks.begun_s
        failures_s = {rank: end.t_s for rank, end in self.ranks.ended.items() if end.failed}
        failures_s |= {rank: t_s for rank, t_s in self.raised_s.items() if t_s > begun_s.get(rank, 0.0)}
        if not failures_s or failures_s.keys() & self._begun_anew():
            return None
        if self.census.members().keys().isdisjoint(living.values()):
            return None  # all of that attempt have ended, and what started them goes on
        since_s = self.age_s() - max(min(failures_s.values()), self.beats.last_t_s)
        elastic = any(ELASTIC.search(member.argv) for member in self.census.members().values() if member.rank is None)
        return max(since_s - (ELASTIC_S if elastic else 0.0), 0.0)

    def _begun_anew(self) -> set[int]:
        """The ranks whose process is gone and whose launcher has started another, which has not spoken yet."""
        members = self.census.members()
        return {rank for rank in self.census.ranks() if self.ranks.pids.get(rank) not in members}

    def several(self) -> bool:
        """Whether other ranks or GPUs take part in the trial, so that a wait may be for them."""
        return len(self.living()) > 1 or self.world() > 1 or bool(self.eyes.devices.gpus)

    def world(self) -> int:
        """How many ranks there are, by what they say and by what launchers told them."""
        return max(self.beats.world, self.ranks.world, self.census.world(), len(self.ranks.pids), len(self.beats.ranks))

    # -- the end

    def finish(self, step: Step) -> tuple[Outcome, Evidence]:
        """End what is left of the trial and put everything together."""
        self.exit = self.exit or self.handle.poll()
        stop = step if self.exit is None and step.reason is not None else None
        if stop is not None:
            if self.several() and self.round_began_s is None:
                self.eyes.devices.dump(self.job())
            stop = replace(stop, why=self.why(stop))
            self.tell(note=self.last_note(stop))
        duration_s, silence_s = self.age_s(), self.silence_s()
        # What it says once we have ended it, or one rank of it, is our doing.
        words, sizes = dict[int, "WorkerResult | None"](), None
        if stop is not None:
            words = self._words()
            sizes = {log.stream: log.size_bytes for log in log_tails(self.trial_dir)}
            self.look_after()
        cleanup = self.handle.stop(grace_s=GRACE_S, clock=self.clock)
        if stop is None:
            self.look_after()
            self._forget_absent_ranks()
        for reader in (self.taps, self.beats, self.ranks):
            reader.close()
        outcome = self.outcome(stop, cleanup=cleanup, duration_s=duration_s)
        return outcome, self.evidence(silence_s=silence_s, duration_s=duration_s, words=words, sizes=sizes)

    def last_note(self, stop: Step) -> str:
        """What is said when the watch is over."""
        return f"ending it: {stop.why}"

    def why(self, stop: Step) -> str:
        """Why it is ended, in words, with the limit that ran out and where that came from."""
        if stop.reason is StopReason.TOTAL:
            limit, age_s = self.trial.budget.total, self.age_s()
            looked = "; to look into its silence took past the limit" if age_s - limit.seconds > SOON_S else ""
            last = f"last sign of progress {self.silence_s():.1f} s before"
            return f"it ran for {age_s:.1f} s (limit {limit.seconds:g} s, {limit.source}{looked}), {last}"
        if stop.reason in (StopReason.STALL, StopReason.STARTUP):
            limit = self.trial.budget.stall if stop.reason is StopReason.STALL else self.trial.budget.startup
            bound = f"{pace.WATCHED:g} times the limit of {limit.seconds:g} s, {limit.source}"
            return f"silent for {self.silence_s():.1f} s ({bound})"
        return self.asked() if stop.reason in ASKED else stop.why

    def outcome(self, stop: Step | None, *, cleanup: Cleanup, duration_s: float) -> Outcome:
        """How it ended."""
        leftovers = f"; {cleanup.ended} processes that it left behind were ended" if cleanup.ended and not stop else ""
        if stop is not None:
            ending, why = Ending.STOPPED_BY_US, stop.why
        elif self.exit is not None and self.exit.signal is not None:
            ending, why = Ending.SIGNALLED, f"signal {self.exit.signal}{leftovers}"
        elif self.exit is not None and self.exit.code is not None:
            ending, why = Ending.EXITED, f"exit code {self.exit.code}{leftovers}"
        else:
            ending, why = Ending.EXITED, f"its supervisor was lost, and with it how the trial ended{leftovers}"
        return Outcome(
            ending=ending,
            exit=self.exit or self.handle.poll(),
            stopped_by=stop.reason if stop else None,
            duration_s=duration_s,
            cleanup=cleanup,
            why=why,
        )

    # -- what there is to be known

    def living(self) -> dict[int, int]:
        """The PID of every rank that has not ended; of a single process, its own."""
        pids = {number: rank.pid for number, rank in self.beats.ranks.items()} | self.ranks.pids
        if not pids:
            return {0: self.handle.pid}
        return {rank: pid for rank, pid in sorted(pids.items()) if rank not in self.ranks.ended and pid}

    def job(self) -> WatchedJob:
        """The trial as those need it who look at its devices."""
        return WatchedJob(
            ranks=self.living(),
            pids=frozenset(self.census.members()),
            world=max(self.world(), len(self.living())),
            trial_dir=self.trial_dir,
            t_s=self.age_s(),
        )

    def evidence(self, **facts: Any) -> Evidence:
        """Everything that was seen; ``facts`` are those that ``gather`` asks for."""
        return gather(self, **facts)

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
        last, budget = self.beats.last, self.trial.budget
        awaits_a_step = pace.awaits_a_step(budget, begun=self.beats.first_step_t_s is not None)
        facts: dict[str, object] = {
            "elapsed_s": self.age_s(),
            "silence_s": self.silence_s(),
            "steps_done": self.beats.steps_done,
            "steps_wanted": self.steps_wanted,
            "phase": last.phase if last else None,
            "step": last.step if last else None,
            "place": pace.place(last, steps_done=self.beats.steps_done),
            "startup_s": budget.startup.seconds if awaits_a_step else None,
            "looks": self.round_began_s is not None and self.position < len(ROUND),
        }
        self.progress(facts | {"note": note} if note else facts)
