"""nsa-harness for Python and notebooks: is it hung, or only slow; and from which value of a setting on?

::

    import nsa_harness as nh

    nh.run(["python", "train.py"])
    nh.bisect("layers=1..12", command=["python", "train.py", "--layers", "{layers}"])
    nh.watch(4242)
    with nh.guard(after_s=60):
        train()

Each question is asked by the command ``nsa-harness`` in a process of its own, which imports nothing into yours.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nsa_harness.ask import Bisected, HarnessError, Ran, Result, UsageError, Watched, bisect, run, watch
    from nsa_harness.block import Guard, expect_long, guard
    from nsa_harness.draw import configs

__all__ = [
    "Bisected",
    "Guard",
    "HarnessError",
    "Ran",
    "Result",
    "UsageError",
    "Watched",
    "bisect",
    "configs",
    "expect_long",
    "guard",
    "run",
    "watch",
]
__version__ = "0.1.0"

_PLACES = {"Guard": "block", "expect_long": "block", "guard": "block", "configs": "draw"}


def __getattr__(name: str) -> object:
    """A name of ``__all__``, imported when it is first asked for: the command line starts from here and needs none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"nsa_harness.{_PLACES.get(name, 'ask')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
