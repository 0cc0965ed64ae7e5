"""Plain English: words that only we used stay out, and names say what a thing is, not that it was found or told."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from own_code import ROOT, trees

CODE = sorted((ROOT / "harness").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

PLAIN = {
    "examiner": "look, probe",
    "announcer": "emitter",
    "litter": "leftovers",
    "even odds": "a probability of one half",
    "has no say": "does not matter",
    "of no use": "does not help",
}
"""Words that readers stumbled over, and what is said instead."""

EMPTY = frozenset({"found", "said", "told", "seen", "left", "known", "held", "kept", "given"})
"""Names that say that something happened and not what it is; they cannot be searched for."""

MOST_EMPTY = 1.0
"""Of 1,000 names that are bound, so many at most are of these; it was 39 once. Lower it when it has fallen."""


@pytest.mark.parametrize("word", PLAIN)
def test_a_word_that_only_we_used_stays_out_of_code_and_pages(word):
    found = re.compile(rf"(?<![a-z])(?:{word})(?![a-z])", re.IGNORECASE)
    places = [str(path.relative_to(ROOT)) for path in (*CODE, *PAGES) if found.search(path.read_text(encoding="utf-8"))]
    assert places == [], f"say: {PLAIN[word]}"


def test_names_say_what_a_thing_is():
    names = Counter(name for tree in trees().values() for name in _bound(tree))
    empty = sum(names[word] for word in EMPTY)
    assert 1000 * empty / names.total() <= MOST_EMPTY


def _bound(tree: ast.Module) -> list[str]:
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.arg):
            names.append(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
    return names
