"""Answer: what happened, how sure, what next; readable in ten seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.core.stacks import deciding_thread, telling_frame
from harness.core.verdict import Kind
from harness.report.facts import failing, groups
from harness.report.next_steps import next_steps
from harness.report.stacks import deciding_sample, place
from harness.report.text import code, md, short_path
from harness.report.words import at, certificate, chance, claim, claim_word, day, headline, planted, tally
from harness.store.run_store import read_evidence

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.record import Run
    from harness.report.facts import Group


def section(run: Run, run_dir: Path) -> Block | None:
    """The block that stands right under the title."""
    sure = [md(text) for text in (claim(run), certificate(run), chance(run)) if text]
    todo = next_steps(run)[:2]
    word = f" *{claim_word(run)}.*" if claim_word(run) else ""
    bullets = [
        _bullet("What happened", [md(text) for text in (planted(run),) if text] + _happened(run, run_dir)),
        _bullet("How sure", sure or ["Nothing is claimed."]),
        _bullet("What next", [md(step.text) for step in todo]),
        _bullet("Run", [f"{md(tally(run))}; {md(day(run.started_at))}; {code(run.id)}; ended: {md(run.ended)}."]),
    ]
    noted = list(run.boundary.notes) if run.boundary else []
    notes = [_bullet("Note", [md(note)]) for note in (*noted, *run.notes)]
    body = "\n".join(bullet for bullet in (*bullets, *notes) if bullet)
    return Block(title="", markdown=f"**{md(headline(run))}**{word}\n\n{body}")


def _bullet(name: str, sentences: list[str]) -> str:
    return f"- **{name}:** {' '.join(sentences)}" if sentences else ""


def _happened(run: Run, run_dir: Path) -> list[str]:
    found = failing(run)
    if found is not None:
        return [_story(run, run_dir, found)]
    others = groups(run)
    if others:
        return [_story(run, run_dir, others[0])]
    return ["Every trial passed: all steps done, the loss finite, nothing left behind."] if run.records else []


def _story(run: Run, run_dir: Path, group: Group) -> str:
    verdict = group.first.verdict
    where = _where(run_dir, group) if verdict.kind is Kind.HANG else ""
    because = md(verdict.because).rstrip(".")
    return f"At {md(at(run, group.value))}, trial {group.first.number}: {because}.{where}"


def _where(run_dir: Path, group: Group) -> str:
    evidence = read_evidence(run_dir, group.first.record.trial.key)
    sample = deciding_sample(evidence, group.first.verdict) if evidence else None
    thread = deciding_thread(sample) if sample else None
    frame = telling_frame(thread) if thread else None
    if frame is None or frame.function in group.first.verdict.because:
        return ""
    named = code(place(frame)) if frame.line else f"{code(frame.function)} in {code(short_path(frame.file))}"
    return f" It waits in {named}."
