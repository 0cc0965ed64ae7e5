"""Cells of a matrix file as a strategy of Hypothesis."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from nsa_harness.ask import HarnessError, UsageError, command_line

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from hypothesis.strategies import SearchStrategy


def configs(file: str | os.PathLike[str]) -> SearchStrategy[dict[str, Any]]:
    """The cells that the matrix in ``file`` allows, each a dictionary of axis and value.

    A failing example shrinks towards the good value of each axis, along the axis: what stays is what the failure needs.

    Raises:
        UsageError: the file cannot be read, or is no matrix; the message is the command's own.
        HarnessError: Hypothesis is not installed, or the instrument could not answer.
    """
    try:
        from hypothesis import reject
        from hypothesis import strategies as st
    except ImportError as error:
        raise HarnessError("configs() needs Hypothesis: pip install hypothesis") from error
    command = command_line("matrix", "show", "--json", str(file))
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(done.stderr.strip())
    plan = json.loads(done.stdout)

    @st.composite
    def cell(draw: Any) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        for axis in plan["axes"]:
            name = axis["name"]
            left = [value for value in from_good(axis) if _may_be({**chosen, name: value}, plan["constraints"])]
            chosen[name] = draw(st.sampled_from(left)) if left else reject()
        return chosen

    return cell()


def from_good(axis: Mapping[str, Any]) -> list[Any]:
    """The values of an axis, the good one first and the farthest from it last."""
    values = list(axis["values"])
    good = values.index(axis["good"])
    return sorted(values, key=lambda value: abs(values.index(value) - good))


def _may_be(partial: Mapping[str, Any], constraints: Sequence[Mapping[str, Any]]) -> bool:
    """Whether no rule is broken by ``partial``, whatever the axes that it lacks will be."""
    for rule in constraints:
        holds = all(name in partial and partial[name] in values for name, values in rule["when"].items())
        required = rule["require"]
        met = required is not None and all(partial.get(name, values[0]) in values for name, values in required.items())
        if holds and not met:
            return False
    return True
