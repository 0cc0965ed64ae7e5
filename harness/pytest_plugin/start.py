"""Starting our own processes: this package and no other, whatever lies in the folder that pytest was started in."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder that has the package ``harness``."""


def python(module: str, *arguments: object, light: bool = False) -> list[str]:
    """The command that calls ``main`` of one of our modules; ``light`` finds the standard library and us only."""
    load = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from harness.pytest_plugin.{module} import main"
    code = f"{load}; main(sys.argv[1:])"
    return [sys.executable, "-P", *(["-S"] if light else []), "-c", code, *map(str, arguments)]
