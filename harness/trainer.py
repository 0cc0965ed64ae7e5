"""The model and trainer, a distribution of its own: what the instrument reads of it, and what it says without."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from harness.core.errors import SpecError

if TYPE_CHECKING:
    from nsa.config import RunConfig

INSTALL = "pip install 'nsa-harness[nsa]', or in a clone: pip install . ./nsa"


class NoTrainerError(SpecError):
    """A question about nsa's trainer, where that or its torch is not installed."""

    help = "Any other program can be asked without it: nsa-harness bisect --axis NAME=VALUES -- COMMAND"


def run_config() -> type[RunConfig]:
    """The trainer's settings. Its errors are ValueErrors, their text meant for the user.

    Raises:
        NoTrainerError: it is not installed.
    """
    try:
        from nsa.config import RunConfig
    except ModuleNotFoundError as error:
        if error.name not in ("nsa", "nsa.config"):
            raise
        raise NoTrainerError(f"this needs nsa's model and trainer, which are not installed here: {INSTALL}") from None
    return RunConfig


def check_torch() -> None:
    """Raise NoTrainerError where the trainer's settings can be read, but nothing can be trained."""
    if find_spec("torch") is None:
        raise NoTrainerError(f"nsa's trainer needs torch, which is not installed here: {INSTALL}")
