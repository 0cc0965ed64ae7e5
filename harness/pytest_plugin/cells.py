"""``pytest matrices/``: each planned cell of a matrix file is a test, which passes when the cell ends as expected.

The instrument runs in a process of its own, as ``nsa-harness matrix run FILE --cell CELL`` does: nothing of it is
imported into the session, and each cell leaves its run and report.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from nsa_harness.ask import BUDGET, INFRA, NOTHING, command_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_KEYS = (re.compile(r"^version:", re.MULTILINE), re.compile(r"^axes:", re.MULTILINE))


def is_asked_for(path: Path, config: pytest.Config) -> bool:
    """Whether ``path`` is a matrix file that was named, or lies in a folder that was: never by collecting everything.

    A cell may be an hour on eight GPUs; ``pytest`` without arguments runs none.
    """
    start = config.invocation_params.dir
    paths = {(start / str(word).partition("::")[0]).resolve() for word in config.invocation_params.args}
    if not {path.resolve(), path.parent.resolve()} & (paths - {config.rootpath.resolve()}):
        return False
    text = path.read_text(encoding="utf-8", errors="replace")
    return all(key.search(text) for key in _KEYS)


class CollectedMatrix(pytest.File):
    """A matrix file."""

    def collect(self) -> Iterator[CellItem]:
        """Its planned cells."""
        process = ask("matrix", "show", "--json", str(self.path))
        if process.returncode:
            raise self.CollectError(process.stderr.strip())
        for cell in json.loads(process.stdout)["cells"]:
            yield CellItem.from_parent(self, name=cell["id"], expected=cell["expected"])


class CellItem(pytest.Item):
    """One cell, held against what its file expects of it."""

    def __init__(self, *, expected: str | None, **options: Any) -> None:
        super().__init__(**options)
        self.expected = expected or "PASS"
        self.add_marker(pytest.mark.hang_guard(off=True))  # its program is watched already

    def runtest(self) -> None:
        """Run it; skipped where it told nothing, because the machine or a budget was in the way."""
        process = ask("matrix", "run", str(self.path), "--cell", self.name)
        self.add_report_section("call", "nsa-harness", f"{process.stdout}{process.stderr}")
        if process.returncode in (BUDGET, NOTHING, INFRA):
            pytest.skip(f"inconclusive: {last_line(process.stderr) or last_line(process.stdout)}")
        if process.returncode:
            raise OtherwiseError(process.stdout.strip() or process.stderr.strip())

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What the run says, without our own frames."""
        if isinstance(excinfo.value, OtherwiseError):
            return f"expected {self.expected}\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it stands."""
        return self.path, None, f"{self.path.name}::{self.name}"


class OtherwiseError(Exception):
    """A cell ended otherwise than its file expects."""


def ask(*words: str) -> subprocess.CompletedProcess[str]:
    """``nsa-harness WORDS``, waited for."""
    return subprocess.run(command_line(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def last_line(text: str) -> str:
    """The last line of ``text`` that says something."""
    return (text.strip().splitlines() or [""])[-1].strip()
