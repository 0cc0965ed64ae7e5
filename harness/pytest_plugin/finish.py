"""Behind the last test: where one plugin's ``pytest_sessionfinish`` hung and was ended, the others have theirs."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from harness.pytest_plugin.guarded import GuardedTests


class Finish:
    """Inside of all wrappers, so that the summary of the terminal comes as ever; JUnit's file is one of the others."""

    def __init__(self, guarded: GuardedTests) -> None:
        self.guarded = guarded

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, Any, Any]:
        """Call those that pytest has not called yet, if one of them was ended."""
        try:
            return (yield)
        except pytest.fail.Exception as error:
            if not self.guarded.hang_behind_tests:
                raise
            ended = error
        rest = _not_yet_called(session.config, ended)
        return rest(session=session, exitstatus=exitstatus)


def _not_yet_called(config: pytest.Config, ended: BaseException) -> Any:
    """The hook without the wrappers, without the function that was ended, and without those called before it."""
    codes = {frame.f_code for frame, _ in traceback.walk_tb(ended.__traceback__)}
    called: list[object] = []
    wrappers: list[object] = []
    rest: list[object] = []
    for impl in reversed(config.hook.pytest_sessionfinish.get_hookimpls()):
        if impl.wrapper or impl.hookwrapper:
            wrappers.append(impl.plugin)
            continue
        rest.append(impl.plugin)
        if getattr(impl.function, "__code__", None) in codes:
            called += rest
            rest = []
    return config.pluginmanager.subset_hook_caller("pytest_sessionfinish", remove_plugins=[*wrappers, *called])
