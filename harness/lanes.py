"""Lanes: trials side by side, each in a thread on GPUs of its own. Journal and screen stay with the caller's thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

from harness.conduct import Conducted, Interrupted
from harness.core.evidence import Evidence
from harness.core.outcome import Ending, Outcome
from harness.core.verdict import Confidence, Kind, Verdict
from harness.launch.claims import Hold, Stopped
from harness.observe.answers import steps_wanted
from harness.observe.neighbours import VISIBLE, Neighbours

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from harness.conduct import Attempts, Begun, Parts
    from harness.core.record import TrialRecord
    from harness.launch.claims import Claims
    from harness.plan.leases import Lease

LOOKS, BETWEEN_LOOKS_S = 3, 1.0
"""How often a GPU is looked at before somebody on it is called a stranger."""


@dataclass(frozen=True, slots=True)
class Running:
    """A trial that runs: what was begun, what it holds, and the parts that only it uses meanwhile."""

    begun: Begun
    lease: Lease
    claim: Hold
    parts: Parts


class Lanes:
    """Runs at most ``len(parts)`` trials at once; parts are not shared, since executors belong to one thread.

    A trial with GPUs sees exactly those that it has claimed. A stranger's process on one of them, before or after,
    makes the trial INFRA. With a single lane everything happens in the caller's thread.
    """

    def __init__(
        self,
        *,
        attempts: Attempts,
        parts: Sequence[Parts],
        gpus: Sequence[str],
        claims: Claims | None,
        label: Callable[[Begun], str],
    ) -> None:
        self.attempts = attempts
        self.gpus = tuple(gpus)
        self.claims = claims
        self.neighbours = Neighbours()
        self.label = label
        self._free = list(parts)
        self._pool = ThreadPoolExecutor(max_workers=len(parts)) if len(parts) > 1 else None
        self._events: SimpleQueue[Mapping[str, object] | tuple[Running, Future[Conducted] | Conducted]] = SimpleQueue()
        self._running: list[Running] = []

    @property
    def busy(self) -> int:
        """How many trials run."""
        return len(self._running)

    def claim(self, lease: Lease) -> Hold | None:
        """GPUs for a trial that nobody else on this machine has; None while others have them and trials of ours run.

        Where none of ours runs, there is nothing to do but to wait for them.

        Raises:
            Interrupted: the user asked to stop while others had them.
        """
        n = len(lease.gpus)
        if self.claims is None or n == 0:
            return Hold(tuple(self.gpus[i] for i in lease.gpus))
        if self.busy:
            return self.claims.try_gpus(n, among=self.gpus)
        try:
            return self.claims.gpus(n, among=self.gpus, stop=self.attempts.interrupted, waits=self._waits)
        except Stopped:
            raise Interrupted("stopped by the user while others had the GPUs") from None

    def _waits(self, who: str) -> None:
        self.attempts.screen.noted(f"waiting for GPUs that {who or 'others'} of this machine use")

    def start(self, begun: Begun, lease: Lease, claim: Hold, *, hide: bool) -> None:
        """Run a trial that the journal knows on the GPUs of ``claim``; ``hide`` hides every other."""
        parts = self._free.pop()
        names = claim.names
        own_parts = replace(parts, child_env={**parts.child_env, VISIBLE: ",".join(names)}) if hide else parts
        running = Running(begun=begun, lease=lease, claim=claim, parts=parts)
        if self._pool is None:
            self._events.put((running, self._conduct(begun, own_parts, names)))
            self._running.append(running)
            return
        self._running.append(running)
        future = self._pool.submit(self._conduct, begun, own_parts, names)
        future.add_done_callback(lambda done: self._events.put((running, done)))

    def finish_one(self) -> tuple[TrialRecord, Lease]:
        """Wait for the next trial to end, and keep what came of it.

        Raises:
            Interrupted: the user stopped it.
        """
        while not isinstance(event := self._events.get(), tuple):
            self.attempts.screen.watched(event)
        running, done = event
        self._running.remove(running)
        running.claim.release()
        self._free.append(running.parts)
        conducted = done if isinstance(done, Conducted) else done.result()
        return self.attempts.keep(running.begun, conducted), running.lease

    def close(self) -> None:
        """Wait for what still runs, keep what ended by itself, and end the threads."""
        try:
            while self._running:
                with suppress(Interrupted):  # it is not recorded, and will be run again
                    self.finish_one()
        finally:
            if self._pool is not None:
                self._pool.shutdown()

    def _conduct(self, begun: Begun, parts: Parts, gpus: Sequence[str]) -> Conducted:
        before = self._strangers(gpus, parts)
        if before:
            why = f"before it began there was {before}"
            return Conducted(
                outcome=Outcome(ending=Ending.NEVER_STARTED, why=why),
                evidence=Evidence(steps_wanted=steps_wanted(begun.trial)),
                verdict=_contaminated(why),
                started_at=parts.clock.wall(),
            )
        watched = self.attempts.screen.watched if self._pool is None else self._news_of(begun)
        done = self.attempts.conduct(begun, parts=parts, watched=watched)
        after = self._strangers(gpus, parts)
        return replace(done, verdict=_contaminated(f"when it had ended there was {after}")) if after else done

    def _strangers(self, gpus: Sequence[str], parts: Parts) -> str:
        """Who is on these GPUs; asked again for a while, since the driver may still list a process that has ended."""
        who = self.neighbours.on(gpus)
        for _ in range(LOOKS - 1):
            if not who:
                break
            parts.clock.sleep(BETWEEN_LOOKS_S)
            who = self.neighbours.on(gpus)
        return who

    def _news_of(self, begun: Begun) -> Callable[[Mapping[str, object]], None]:
        """Passes on only news: with several trials at once a moving line for each would tell nothing."""
        name = self.label(begun)

        def tell(facts: Mapping[str, object]) -> None:
            if facts.get("note"):
                self._events.put({"note": f"{name}: {facts['note']}"})

        return tell


def _contaminated(why: str) -> Verdict:
    return Verdict(
        kind=Kind.INFRA,
        cause="foreign-process",
        rule="contaminated",
        because=f"{why}; what runs beside a stranger says nothing about the program",
        cites=("exit",),
        confidence=Confidence.PROOF,
    )
