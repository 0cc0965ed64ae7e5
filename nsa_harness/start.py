"""The command ``nsa-harness``, whatever lies in the folder that it is typed in or on PYTHONPATH.

Many a project has a folder ``harness/`` or ``nsa/`` of its own, and PYTHONPATH=. puts it before what is installed.
Ctrl-C is answered before anything else is imported; so this module imports next to nothing.
"""

from __future__ import annotations

import os
import signal
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
"""The folder that has this package and, beside it, ``harness``."""

TRAINER = os.path.join("nsa", "train", "probe.py")
"""A file that a folder ``nsa`` has only when it is our trainer."""


def entry() -> None:
    """The command line."""
    before = signal.signal(signal.SIGINT, leave)
    own_packages()
    behind_the_rest(os.environ.get("PYTHONPATH", ""))
    from harness.__main__ import entry

    entry(before)


def leave(number: int, _: object) -> None:
    """End at once, with the exit code by which a shell says that a signal ended a program."""
    os._exit(128 + number)


def behind_the_rest(places: str) -> None:
    """Look for modules last in these folders: a ``queue.py`` of the program's there is the program's, and not ours."""
    given = {os.path.abspath(place) for place in places.split(os.pathsep) if place}
    behind = [place for place in sys.path if os.path.abspath(place) in given]
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) not in given] + behind


def own_packages() -> None:
    """Make ``import harness`` and ``import nsa`` mean our packages; an ``nsa`` that is not ours is as if not there."""
    _take("harness", ROOT)
    trainer = next((place for place in (ROOT, *sys.path) if os.path.isfile(os.path.join(place, TRAINER))), None)
    if trainer is None:
        sys.modules["nsa"] = None  # pyrefly: ignore[unsupported-operation] - import gives ModuleNotFoundError, find_spec None
    else:
        _take("nsa", trainer)


def _take(name: str, place: str) -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec(name, [place])
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"nsa-harness is not whole: {place} has no package {name!r}; install it again")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    entry()
