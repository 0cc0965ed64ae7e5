"""The modules that STYLE.md lists carry their reasons themselves."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STYLE = (ROOT / "STYLE.md").read_text(encoding="utf-8")
LISTED = re.findall(r"`(\w+/\w+\.py)`", STYLE.partition("**Essays.**")[2].partition("**Comments.**")[0])
WORDS = 100


def test_at_least_ten_are_listed():
    assert len(set(LISTED)) == len(LISTED) >= 10


@pytest.mark.parametrize("module", LISTED)
def test_a_module_with_a_hard_decision_begins_with_its_reasons(module):
    text = ast.get_docstring(ast.parse((ROOT / "harness" / module).read_text(encoding="utf-8")))
    assert text is not None
    assert len(text.split()) >= WORDS
