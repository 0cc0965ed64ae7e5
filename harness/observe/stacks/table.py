"""STACK_SOURCES: ways to see the stacks of a process, in order of preference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.ports import StackSource

STACK_SOURCES = Registry(
    "stack source",
    {
        "py-spy": "harness.observe.stacks.pyspy:PySpy",
        "pystack": "harness.observe.stacks.pystack:PyStack",
        "faulthandler": "harness.observe.stacks.faulthandler:Faulthandler",
    },
)
"""Neutral and cheap first; faulthandler last, because it sends a signal."""


def load_sources(
    names: Sequence[str] = (), *, keeps_locals: bool = False, **all_of_them: Any
) -> tuple[StackSource, ...]:
    """The sources called ``names``, or all of them, in table order; with the values of locals where one can see them.

    ``all_of_them`` are arguments of each.

    Raises:
        UnknownNameError: a name that is not in the table.
    """
    options = {"py-spy": {"keeps_locals": True}} if keeps_locals else {}
    return tuple(
        STACK_SOURCES.load(name)(**options.get(name, {}), **all_of_them) for name in (names or STACK_SOURCES.names())
    )
