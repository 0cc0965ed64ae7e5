"""Every promise of docs/promises.md, and every finding of the reliability campaigns, names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    line.strip("|\n ").split("|")
    for line in (ROOT / "docs" / "promises.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| promise")
]
NEWEST = max((ROOT / "bench" / "results").glob("reliability-*.md"))
FINDINGS = [line for line in NEWEST.read_text().splitlines() if line.startswith("|") and "::test_" in line]
PROMISES = {row[0].strip(): re.findall(r"`([^`]+)`", row[1]) for row in ROWS}


def names_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_there_are_promises():
    assert len(PROMISES) == len(ROWS) > 10
    assert len(FINDINGS) > 10


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_is_held_by_tests_that_exist(promise):
    assert PROMISES[promise], "it names no test"
    are_there(PROMISES[promise])


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda line: line.split("|")[1].strip())
def test_a_finding_is_answered_by_tests_that_exist(finding):
    names = re.findall(r"`(tests/[^`]+|::[^`]+)`", finding)
    assert names or "docs/" in finding, "it names neither a test nor a page"
    are_there(names)


def are_there(names: list[str]) -> None:
    """Each test is there; one that begins with ``::`` is in the file of the one before it."""
    path = ""
    for name in names:
        path, _, function = name.rpartition("::") if not name.startswith("::") else (path, "", name[2:])
        assert function.startswith("test_"), name
        assert function in names_in(ROOT / path), name
