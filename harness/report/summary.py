"""Summary: what a reader must have seen after ten seconds, for every kind of run and every form of its report."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.boundary import Finding
from harness.core.errors import StoreError
from harness.core.verdict import FAILURES
from harness.reading.frames import deciding_thread, own_frame, telling_frame
from harness.report.facts import failing, groups
from harness.report.stacks import deciding_sample
from harness.report.text import short_path
from harness.report.words import at, certificate, claim_of, day, headline, planted, taken_over, tally
from harness.store.run_store import read_evidence

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.evidence import Evidence
    from harness.core.record import Run, TrialRecord
    from harness.report.next_steps import Step


COMPARISON = "comparison"
"""The kind of a report on two runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to look: a function with its file and line, or in words why no line is known.

    ``brief`` is the line without the folders of its file; empty where there is none.
    """

    text: str
    brief: str = ""

    @property
    def is_line(self) -> bool:
        """Whether it is a line."""
        return bool(self.brief)

    @classmethod
    def at(cls, function: str, file: str, line: int) -> Place:
        """That line of that file."""
        where = f":{line}" if line else ""
        brief = f"{function} ({file.rpartition('/')[2]}{where})"
        return cls(text=f"{function} ({short_path(file)}{where})" if file else function, brief=brief)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The first screen of a report.

    ``verdict`` is a few words, ``tone`` (good, bad, slow, unsure) how to set them, ``answer`` the whole sentence, which
    may begin with the verdict (``is_said``). ``claim`` is one of the three words or empty; ``sure`` are the counts that
    carry it, ``judged`` the rule and its confidence. ``rank`` and ``place`` are those at fault, with a reason in words
    where there is none. ``planted`` names a fault that was put there on purpose.
    """

    kind: str
    verdict: str
    tone: str
    answer: str
    claim: str
    sure: tuple[str, ...]
    judged: str
    happened: tuple[str, ...]
    rank: str
    place: Place
    steps: tuple[Step, ...]
    tally: str
    when: str
    notes: tuple[str, ...] = ()
    planted: str = ""
    is_said: bool = False


def summarise_along(run: Run, run_dir: Path, steps: tuple[Step, ...]) -> Summary:
    """The summary of a threshold search."""
    (word, tone), (claimed, counts) = _verdict(run), claim_of(run)
    group = failing(run) or next(iter(groups(run)), None)
    record = group.first.record if group else None
    told: list[str] = []
    if group:
        told.append(
            f"At {at(run, group.value)}, trial {group.first.number}: {group.first.verdict.because.rstrip('.')}."
        )
    elif run.records:
        told.append("Every trial passed: all steps done, the loss finite, nothing left behind.")
    return Summary(
        kind="threshold" if len(run.axis.values) > 1 else "single",
        verdict=word,
        tone=tone,
        answer=headline(run),
        claim=claimed,
        sure=tuple(text for text in (counts, taken_over(run), certificate(run)) if text) or ("Nothing is claimed.",),
        judged=judged(record),
        happened=tuple(told),
        rank=rank_of(record, run_dir),
        place=place_of(record, run_dir),
        steps=steps,
        tally=tally(run),
        when=day(run.started_at),
        notes=notes_of(run),
        planted=planted(run),
        is_said=run.boundary is None or run.boundary.finding is Finding.INCONCLUSIVE,
    )


def notes_of(run: Run) -> tuple[str, ...]:
    """What a reader must know beside the answer."""
    answer = run.answer
    of_search = answer.boundary.notes if answer and answer.boundary else ()
    return (*of_search, *(answer.notes if answer else ()), *run.notes)


def _verdict(run: Run) -> tuple[str, str]:
    boundary, found = run.boundary, failing(run)
    if boundary is None:
        return (f"No answer ({run.ended})", "unsure")
    match boundary.finding:
        case Finding.THRESHOLD | Finding.ALL_FAIL:
            what = str(found.first.verdict) if found else "Failure"
            return (f"{what} from {run.axis.name}={boundary.first_bad} on", "bad")
        case Finding.NO_FAILURE:
            return ("PASS: nothing failed", "good")
        case Finding.NO_THRESHOLD_SLOW:
            return ("SLOW: no threshold", "slow")
        case Finding.INCONCLUSIVE:
            return ("Inconclusive", "unsure")


def judged(record: TrialRecord | None) -> str:
    """The rule and how strongly it judges; empty when there is nothing to judge."""
    return f"{record.verdict} by rule {record.verdict.rule}, confidence {record.verdict.confidence}" if record else ""


def rank_of(record: TrialRecord | None, run_dir: Path) -> str:
    """``rank 1``, or why no rank is named."""
    if record is None:
        return "no rank failed"
    if record.verdict.rank is not None:
        return f"rank {record.verdict.rank}"
    return "all ranks alike" if _failed_alike(record, run_dir) else "no single rank"


def _failed_alike(record: TrialRecord, run_dir: Path) -> bool:
    """Whether every one of several ranks ended in the same exception with the same message."""
    try:
        evidence = read_evidence(run_dir, record.trial.key)
    except StoreError:
        return False
    results = [facts.result for facts in evidence.ranks] if evidence else []
    raised = {(result.exception, result.message) for result in results if result is not None and result.exception}
    return len(results) > 1 and None not in results and len(raised) == 1


def place_of(record: TrialRecord | None, run_dir: Path) -> Place:
    """``acquire_forever (harness/specimens/backward_deadlock.py:23)``, or what there is in its place."""
    if record is None:
        return Place(text="no line to look at")
    try:
        evidence = read_evidence(run_dir, record.trial.key)
    except StoreError:
        return Place(text="line not known: its evidence cannot be read")
    return place_in(record, evidence)


def place_in(record: TrialRecord, evidence: Evidence | None) -> Place:
    """As :func:`place_of`: the program's own line, and one inside a library only where none of its own is known."""
    if evidence is None:
        return Place(text="line not known: its evidence was not kept")
    if record.verdict.kind in FAILURES and evidence.result is not None and evidence.result.traceback:
        return last_line(evidence.result.traceback)
    sample = deciding_sample(evidence, record.verdict)
    thread = deciding_thread(sample) if sample else None
    frame = (own_frame(thread) or telling_frame(thread)) if thread else None
    if frame is not None:
        return Place.at(frame.function, frame.file, frame.line)
    phase = record.verdict.phase
    return Place(text=f"no stack was taken; it was in {phase}" if phase else "no stack was taken")


def last_line(traceback: str) -> Place:
    """The innermost place of a traceback that is not a library's: ``f (nsa/train/trainer.py:59)``."""
    found = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', traceback)
    own = [item for item in found if "/site-packages/" not in item[0] and "/lib/python3" not in item[0]]
    if not found:
        return Place(text="no line in its traceback")
    file, line, function = (own or found)[-1]
    return Place.at(function, file, int(line))
