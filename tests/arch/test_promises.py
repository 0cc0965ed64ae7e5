"""Every promise of docs/promises.md names tests that hold it, and they are there."""

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
PROMISES = {row[0].strip(): re.findall(r"`([^`]+)`", row[1]) for row in ROWS}


def names_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_there_are_promises():
    assert len(PROMISES) == len(ROWS) > 10


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_is_held_by_tests_that_exist(promise):
    assert PROMISES[promise], "it names no test"
    for name in PROMISES[promise]:
        path, _, function = name.partition("::")
        assert function.startswith("test_"), name
        assert function in names_in(ROOT / path), name
