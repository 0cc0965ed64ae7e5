"""A function can be taken in at a glance: decisions are counted in the syntax tree, where nothing hides them."""

from __future__ import annotations

import ast
from collections import Counter

from bench.measure_code import decisions, measure
from own_code import ROOT, trees


def test_a_decision_counts_wherever_it_stands():
    code = "def f(a, b):\n    return [x for x in a if x or b] if a else (1 if b and a else 2)\n"
    assert decisions(ast.parse(code).body[0]) == 1 + (1 + 1) + 1 + 1 + 1 + 1


def test_no_more_than_it_was_is_decided_in_a_function_nor_folded_into_an_expression():
    found = measure(ROOT / "harness")
    assert found.decisions <= 8
    assert found.folded <= 12.0


def test_a_name_is_given_once_in_a_module():
    twice: list[str] = []
    for path, tree in trees().items():
        names = Counter(
            node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list
        )
        twice += [f"{path.relative_to(ROOT)}: {name}" for name, n in names.items() if n > 1]
    assert twice == []


def test_a_public_class_has_its_name_for_itself():
    names: Counter[str] = Counter()
    for tree in trees().values():
        names.update(
            node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        )
    assert [name for name, n in names.items() if n > 1] == []
