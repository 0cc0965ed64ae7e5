"""The first thing of a session: whether it is run in a process of its own (``keeper``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """Before output is captured and the project's own code is loaded."""
    option = early_config.known_args_namespace.hang_guard
    if early_config.getini("hang_guard") if option is None else option:
        from harness.pytest_plugin import keeper

        if keeper.can_keep(early_config):
            keeper.keep()
    return (yield)
