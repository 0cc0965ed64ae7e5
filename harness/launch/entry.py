"""The last step of a forked worker: from a request to the function that is the trial."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def prepare(request: dict[str, Any]) -> Callable[[], int]:
    """What the worker is to run; it returns the exit code.

    Raises:
        ImportError, AttributeError: there is no such module or function.
    """
    module, _, name = request["entry"].partition(":")
    function = getattr(importlib.import_module(module), name)
    sys.argv = list(request["argv"])
    return partial(_run, function, request["trial_dir"])


def _run(function: Callable[[str], int | None], trial_dir: str) -> int:
    code = function(trial_dir)
    return 0 if code is None else code
