"""A pair of places before and after a change: how much differs between them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.report.compare import Pair


def trials_of(command: str):
    """As much of trials as is looked at."""
    trial = SimpleNamespace(config={"command": command})
    return SimpleNamespace(records=[SimpleNamespace(trial=trial)])


@pytest.mark.parametrize(
    ("after", "changed", "differing"),
    [
        ("t.py --overlap", (), "nothing that was recorded differs"),
        ("t.py --overlap --amp", ("command: a -> b",), "only one thing differs"),
        ("t.py --overlap --bucket 64", ("command: a -> b",), "only one thing differs"),
        ("t.py --overlap --bucket 64 --amp", ("command: a -> b",), "several parts of the command line differ"),
        ("t.py --overlap --amp", ("command: a -> b", "env X: 1 -> 2"), "2 settings differ"),
    ],
)
def test_two_flags_of_a_command_are_not_one_setting(after, changed, differing):
    pair = Pair(name="the run", before=trials_of("t.py --overlap"), after=trials_of(after), changed=changed)
    assert pair.differing == differing
