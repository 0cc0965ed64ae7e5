"""How much a reader has to take in: decisions of a function, comprehensions among names, lines of each room.

    python -m bench.measure_code                 # harness/, a line a figure
    python -m bench.measure_code --worst 20      # and the functions with the most decisions
    python -m bench.measure_code nsa             # another package

Decisions are counted in the syntax tree, so that they count wherever they stand: one for the function, one for each
``if``, ``for``, ``while``, ``except``, ``?:``, case and comprehension, one for each ``if`` in a comprehension, and one
for each further operand of ``and`` and ``or``. Inner functions count by themselves, lambdas do not count. Names are
names and attributes. Limits that only count lines are met by folding several decisions into one expression.
"""

from __future__ import annotations

import argparse
import ast
import math
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ONE_EACH = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SHARE = 0.9


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What was counted: ``functions`` are decisions and place of each, ``lines`` those of each room."""

    functions: tuple[tuple[int, str], ...]
    names: int
    comprehensions: int
    lines: dict[str, int]

    @property
    def decisions(self) -> int:
        """Nine functions of ten have at most so many decisions."""
        counts = sorted(count for count, _ in self.functions)
        return counts[math.ceil(SHARE * len(counts)) - 1]

    @property
    def folded(self) -> float:
        """Comprehensions to 1,000 names."""
        return 1000 * self.comprehensions / self.names


def decisions(function: ast.AST) -> int:
    """The decisions of one function, without those of functions in it."""
    total = 1
    left = list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            continue
        if isinstance(node, ONE_EACH):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
        left.extend(ast.iter_child_nodes(node))
    return total


def measure(root: Path) -> Measures:
    """All of the package at ``root``."""
    functions: list[tuple[int, str]] = []
    lines: Counter[str] = Counter()
    names = comprehensions = 0
    for path, tree in _trees(root):
        inside = path.relative_to(root).parts
        lines[inside[0] if len(inside) > 1 else "."] += path.read_text(encoding="utf-8").count("\n")
        for node in ast.walk(tree):
            names += isinstance(node, (ast.Name, ast.Attribute))
            comprehensions += isinstance(node, COMPREHENSIONS)
            if isinstance(node, FUNCTIONS):
                functions.append((decisions(node), f"{path}:{node.lineno} {node.name}"))
    return Measures(functions=tuple(functions), names=names, comprehensions=comprehensions, lines=dict(lines))


def _trees(root: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(root.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, nargs="?", default=Path("harness"))
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="the N functions with the most decisions")
    options = parser.parse_args()
    found = measure(options.package)
    print(f"decisions of 90 % of functions at most {found.decisions}, of {len(found.functions)}")
    print(f"comprehensions to 1,000 names {found.folded:.1f}")
    print(f"lines {sum(found.lines.values())}: {', '.join(f'{room} {n}' for room, n in sorted(found.lines.items()))}")
    for count, place in sorted(found.functions, reverse=True)[: options.worst]:
        print(f"{count:>4}  {place}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
