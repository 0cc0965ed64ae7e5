"""Only ``harness.reading`` compares stacks, judges what moves, and knows the names of kernel functions."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "harness"
ELSEWHERE = sorted(
    path
    for path in ROOT.rglob("*.py")
    if path.relative_to(ROOT).parts[0] not in ("reading", "specimens", "testing", "shim")
)

KERNEL = re.compile(
    r"futex_|hrtimer|nanosleep|do_wait|ep_poll|poll_schedule|pipe_(read|write)\b|unix_stream|sk_wait|wait_woken"
    r"|flock_lock|lock_inode|rpc_wait|wait_for_partner|do_signal_stop|n_tty"
)
SYSTEM_CALLS = {"observe/syscalls.py", "observe/ends.py"}
"""They give system calls their names, by number, and say what a call's arguments mean; they decide nothing by that."""

READ_ONLY_THERE = {"wchan", "voluntary_switches", "involuntary_switches", "minor_faults", "major_faults"}
"""What the kernel counts of a process: to compare it is to judge whether something moves."""


def judgements(code: str, *, names_calls: bool = False) -> list[str]:
    """The lines that compare stacks or counters, or match kernel functions by name."""
    found = []
    tree = ast.parse(code)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            attributes = {side.attr for side in sides if isinstance(side, ast.Attribute)}
            if attributes & READ_ONLY_THERE or [type(s) for s in sides if getattr(s, "attr", "") == "frames"][1:]:
                found.append(ast.unparse(node))
        text = node.value if isinstance(node, ast.Constant) and id(node) not in docstrings else None
        if isinstance(text, str) and KERNEL.search(text) and not names_calls:
            found.append(text)
    return found


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_outside_the_reading_room_judges_stillness(path):
    assert judgements(path.read_text(), names_calls=str(path.relative_to(ROOT)) in SYSTEM_CALLS) == []


@pytest.mark.parametrize(
    "code",
    [
        "same = one.frames == other.frames",
        'asleep = thread.wchan in ("x", "y")',
        "moved = now.voluntary_switches > before.voluntary_switches",
        'WAITS = ("futex_do_wait",)',
        'is_timed = "hrtimer" in text',
    ],
)
def test_a_judgement_in_another_room_is_seen(code):
    assert judgements(code)
