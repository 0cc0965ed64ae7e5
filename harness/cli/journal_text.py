"""What the journal's verbs print."""

from __future__ import annotations

from collections import Counter
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any

from harness.core.campaign import Override, Task
from harness.core.codec import from_json
from harness.core.point import Point
from harness.core.record import BUDGET_USED_UP
from harness.core.verdict import Answer
from harness.replay import replay
from harness.report.findings import Findings
from harness.report.next_steps import go_on
from harness.report.summary import steps_of
from harness.report.text import command
from harness.report.tried import grouped, verdict_counts
from harness.report.watched import job_lines
from harness.store.history import History, read_lines
from harness.store.shelf import NOT_FINISHED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.core.campaign import CampaignSpec
    from harness.core.record import TrialRecord
    from harness.report.words import NextStep
    from harness.store import journal

WIDEST = 46


def name_of(question: CampaignSpec, cell: Point) -> str:
    """A cell in a few words."""
    return question.matrix.space.name_of(cell)


def status_lines(run_dir: Path) -> list[str]:
    """The state of a run in a few lines."""
    history, played = History.read(run_dir), replay(run_dir)
    question, records = history.question, history.records()
    run = history.run()
    findings = Findings(run=run, run_dir=run_dir)
    lines = [question.question, f"run directory: {run.directory}", f"state: {run.ended}"]
    lines += job_lines(findings.answer.job)[1:]
    lines.append(f"trials: {len(records)}" + (f" ({verdict_counts(records)})" if records else ""))
    for fact in history.facts():
        if isinstance(fact, Override):
            cell = name_of(question, fact.cell)
            lines.append(f"said: {cell}: {fact.answer}, by {fact.by}: {fact.why}")
    if history.undone():
        lines.append(f"taken back: {len(history.undone())} trials")
    if history.reused():
        lines.append(f"of earlier runs: {len(history.reused())} trials")
    running = history.started_not_finished()
    lines += [f"begun and not ended: {name_of(question, trial.point)}" for trial in running]
    if run.ended == BUDGET_USED_UP:
        return [*lines, *_next(go_on(findings))]
    if findings.is_watched and run.is_whole:
        return [*lines, *chain.from_iterable(map(_next, steps_of(findings)))]
    request = played.search.ask()
    if request is None and history.undone() and run.ended == NOT_FINISHED:
        return [*lines, "next: nothing more is asked; --resume writes down what the answers show now"]
    if request is None:
        return [*lines, "next: nothing; every question is answered"]
    remaining = played.search.estimate()
    return [*lines, f"next: {name_of(question, request.cell)} ({request.reason})", f"left: {remaining.text}"]


def _next(step: NextStep) -> list[str]:
    return [f"next: {step.text}", *command(step.command, indent="  ")]


def log_lines(run_dir: Path) -> Iterator[str]:
    """Every event on a line."""
    question = History.read(run_dir).question
    lines, torn = read_lines(run_dir)
    for line in lines:
        yield f"{line.number:>5}  {line.wall[:19].replace('T', ' ')}  {line.event:<9} {_event(line, question)}".rstrip()
    if torn is not None:
        yield f"{torn.number:>5}  {torn}"


def _event(line: journal.Line, question: CampaignSpec) -> str:
    data = line.data
    match line.event:
        case "header":
            return f"{'resumed' if data.get('resumed') else 'begun'}: {' '.join(data.get('argv', []))}"
        case "plan":
            return str(data["text"])
        case "decision":
            cell = name_of(question, from_json(Point, data["cell"]))
            gpus = f", on GPU {' '.join(data['gpus'])}" if data.get("gpus") else ""
            return f"{cell}  {data['role']}: {data['reason']}{gpus}"
        case "start":
            return f"{name_of(question, from_json(Point, data['trial']['point']))}  trial {data['trial']['key']}"
        case "record" | "reuse":
            record = data["record"]
            cell = name_of(question, from_json(Point, record["trial"]["point"]))
            run = f"  from {data['run']}" if line.event == "reuse" else ""
            verdict = record["verdict"]
            words = f"{verdict['kind']} ({verdict['cause']})" if verdict["cause"] else verdict["kind"]
            return f"{cell}  {words}, {record['answer']}, {record['outcome']['duration_s']:.1f} s{run}"
        case "said":
            override = from_json(Override, data)
            return f"{name_of(question, override.cell)}  {override.answer}, by {override.by}: {override.why}"
        case "undo":
            return f"the last {data['count']} answers are taken back"
        case "note":
            return str(data["text"])
        case _:
            return str(data.get("why", ""))


def replay_lines(run_dir: Path) -> tuple[list[str], bool]:
    """The decisions as they were and as they would be now; whether all are the same."""
    question, played = History.read(run_dir).question, replay(run_dir)
    lines: list[str] = []
    for step in played.differing:
        now = f"{name_of(question, step.now[0].cell)} ({step.now[0].role})" if step.now else "nothing more"
        was = f"{name_of(question, step.cell)} ({step.role})"
        lines.append(f"journal line {step.line}: it asked {was}; now it would ask {now}")
    total = len(played.steps)
    lines.append(f"{total - len(played.differing)} of {total} decisions are the same")
    request = played.search.ask()
    if request is not None:
        lines.append(f"next: {name_of(question, request.cell)} ({request.reason})")
    elif question.task is not Task.CELLS:
        lines.append("the search is over")
    return lines, not played.differing


def _tried(run_dir: Path) -> tuple[Any, dict[Point, list[TrialRecord]]]:
    history = History.read(run_dir)
    return history.question, grouped((*history.reused(), *history.records()), lambda record: record.trial.point)


def _ending(records: list[TrialRecord]) -> str:
    counts = Counter(str(record.verdict) for record in records)
    return ", ".join(f"{words} x{n}" if n > 1 else words for words, n in counts.most_common())


def _answers(records: list[TrialRecord]) -> Counter[Answer]:
    return Counter(record.answer for record in records)


def graph_lines(run_dir: Path) -> list[str]:
    """A row for each cell that was tried, in the order of their first trials."""
    question, tried = _tried(run_dir)
    if not tried:
        return ["no trial has ended yet"]
    names = {cell: name_of(question, cell) for cell in tried}
    width = min(max(map(len, names.values())), WIDEST)
    lines: list[str] = []
    for cell, records in tried.items():
        answers = _answers(records)
        bad, good = answers[Answer.BAD], answers[Answer.GOOD]
        strip = "X" * min(bad, 9) + "." * min(good, 44) + "?" * (len(records) - bad - good)
        name = names[cell]
        if len(name) > WIDEST:
            lines.append(name)
            name = ""
        lines.append(f"{name:<{width}}  {strip}  {_ending(records)}")
    return [*lines, "", "X failed   . passed   ? neither; one sign a trial"]


def dot_lines(run_dir: Path) -> list[str]:
    """The same for Graphviz."""
    question, tried = _tried(run_dir)
    lines = ["graph cells {", "  node [shape=box, style=filled, fontname=Helvetica];"]
    numbers = dict(zip(tried, range(len(tried)), strict=True))
    for cell, records in tried.items():
        answers = _answers(records)
        colour = "#f4b6b6" if Answer.BAD in answers else "#b9e0b9" if Answer.GOOD in answers else "#e5e5e5"
        text = f"{name_of(question, cell)}\\n{_ending(records)}".replace('"', "'")
        lines.append(f'  c{numbers[cell]} [label="{text}", fillcolor="{colour}"];')
    for one, other in combinations(tried, 2):
        differs = [name for name, value in one if other.get(name) != value]
        if len(differs) == 1:
            lines.append(f'  c{numbers[one]} -- c{numbers[other]} [label="{differs[0]}"];')
    return [*lines, "}"]
