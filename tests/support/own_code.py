"""The instrument's own sources, parsed once for all tests that look at them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def trees() -> dict[Path, ast.Module]:
    """The syntax tree of each file of ``harness``."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "harness").rglob("*.py"))}
