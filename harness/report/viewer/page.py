"""Page: a run, or every run in a folder, as one file: data, style and script inside, no script but ours."""

from __future__ import annotations

import base64
import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from harness import __version__
from harness.core.verdict import Answer
from harness.report.compare import CHANGES, UNCHANGED, pairs
from harness.report.findings import object_at
from harness.report.render.html import own
from harness.report.render.json import dump, hidden
from harness.report.tried import verdict_counts
from harness.report.viewer.data import of_run
from harness.report.write import build
from harness.store import layout
from harness.store.files import read_text
from harness.store.shelf import RunSummary, list_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.report.compare import Pair
    from harness.report.tried import TrialSet
    from harness.report.write import Report

_MARKS = ('<meta name="generator" content="nsa-harness ', "script-src 'sha256-")
"""What stands in the head of every page of ours that has our script."""


def is_page(path: Path, *, title: str = "") -> bool:
    """Whether a file is such a page, of this version or an earlier one, with a title that begins with ``title``."""
    with suppress(OSError, UnicodeDecodeError):
        head = read_text(path).partition("<style>")[0]
        return f"<title>{title}" in head and all(mark in head for mark in _MARKS)
    return False


def render(report: Report, *, hide: Callable[[str], str]) -> str:
    """The run as a page to look into; of a comparison both runs side by side."""
    summary, before = report.summary, report.before
    after = build(report.run, report.findings.run_dir) if before else report  # each as its own report has it
    runs = (before, after) if before else (after,)
    document = {
        "title": report.title,
        "verdict": summary.verdict,
        "tone": summary.tone,
        "answer": summary.answer,
        "planted": summary.planted,
        "runs": list(map(of_run, runs)),
        "pairs": list(map(_pair, pairs(before.run, report.run))) if before else [],
    }
    return page(hidden(document, hide))


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "name": pair.name,
        "change": pair.change,
        "tone": CHANGES.get(pair.change, "unsure"),
        "order": (*CHANGES, *UNCHANGED).index(pair.change),
        "changed": list(pair.changed),
        "before": verdict_counts(pair.before.records),
        "after": verdict_counts(pair.after.records),
        "trials": [_worst(pair.before), _worst(pair.after)],
    }


def _worst(trials: TrialSet) -> int | None:
    """The place in the run of the trial to look at: the first that did not pass, else the first; None without one."""
    for trial in trials:
        if trial.record.answer is not Answer.GOOD:
            return trial.number - 1
    return trials.first.number - 1 if trials else None


def page(document: dict[str, Any]) -> str:
    """``document``, of which nothing needs to be hidden any more, as the page."""
    from jinja2 import Environment
    from markupsafe import Markup

    environment = Environment(autoescape=True, trim_blocks=True, keep_trailing_newline=True)
    script, style, data = own("viewer.js"), own("report.css") + own("viewer.css"), dump(document)
    for sign in "<>&":  # no parser of HTML finds the end of a script in it
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    inside = {"data": Markup(data), "script": Markup(script), "style": Markup(style)}
    template = environment.from_string(own("viewer.html.j2"))
    return template.render(version=__version__, document=document, digest=digest, **inside)


_TITLE, UNREADABLE = "The runs in ", "cannot be read"


def is_index(path: Path) -> bool:
    """Whether a file is the page of a folder, of this version or an earlier one."""
    return is_page(path, title=_TITLE)


def index(folder: Path, *, hide: Callable[[str], str]) -> str:
    """The page for the runs and bundles in ``folder``, newest first; links are relative to it."""
    rows = sorted(_rows(folder), key=lambda row: str(row["started"]), reverse=True)
    document = {
        "title": f"{_TITLE}{folder.name or folder}/",
        "verdict": "",
        "tone": "unsure",
        "answer": f"{len(rows)} {'run' if len(rows) == 1 else 'runs'}, newest first.",
        "planted": "",
        "index": rows,
    }
    return page(hidden(document, hide))


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The runs, then the bundles."""
    yield from map(_row, list_runs(folder))
    for path in sorted(folder.glob(f"*/{layout.findings(folder).name}")):
        findings = object_at(path)
        row = RunSummary(
            directory=path.parent,
            started_at=str(findings.get("started_at", "")),
            question=str(findings.get("title", "")),
            answer=str(findings.get("verdict", "")),
            trials=len(findings.get("trials") or ()),
            ended=str(findings.get("ended", UNREADABLE)),
        )
        yield _row(row)


def _row(row: RunSummary) -> dict[str, Any]:
    run = row.directory
    pages = (("report", layout.report(run, "html")), ("viewer", layout.viewer(run)))
    links = [[name, f"{run.name}/{path.name}"] for name, path in pages if path.is_file()]
    return {
        "name": run.name,
        "started": row.started_at[:16].replace("T", " "),
        "question": row.question,
        "answer": row.problem or row.answer or row.finding,
        "trials": row.trials,
        "ended": UNREADABLE if row.problem else row.ended,
        "links": links,
    }
