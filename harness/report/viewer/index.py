"""Index: every run in a folder as one page that can be filtered and sorted, with links to what lies beside each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.report.facts import object_at
from harness.report.render.json import hidden
from harness.report.viewer.page import is_page, page
from harness.store import layout
from harness.store.shelf import list_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


_TITLE = "The runs in "


def is_index(path: Path) -> bool:
    """Whether a file is such a page, of this version or an earlier one."""
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
    for row in list_runs(folder):
        yield _row(
            row.directory,
            started=row.started_at,
            question=row.question,
            answer=row.problem or row.answer or row.finding,
            trials=row.trials,
            ended="cannot be read" if row.problem else row.ended,
        )
    for path in sorted(folder.glob(f"*/{layout.findings(folder).name}")):
        findings = object_at(path)
        yield _row(
            path.parent,
            started=str(findings.get("started_at", "")),
            question=str(findings.get("title", "")),
            answer=str(findings.get("verdict", "")),
            trials=len(findings.get("trials") or ()),
            ended=str(findings.get("ended", "cannot be read")),
        )


def _row(run: Path, *, started: str, question: str, answer: str, trials: int, ended: str) -> dict[str, Any]:
    pages = (("report", layout.report(run, "html")), ("viewer", layout.viewer(run)))
    links = [[name, f"{run.name}/{path.name}"] for name, path in pages if path.is_file()]
    return {
        "name": run.name,
        "started": started[:16].replace("T", " "),
        "question": question,
        "answer": answer,
        "trials": trials,
        "ended": ended,
        "links": links,
    }
