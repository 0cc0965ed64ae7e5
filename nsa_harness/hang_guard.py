"""What pytest loads: the hang guard, or, where the project's own folder ``harness`` hides it, a word about that.

pytest shares its process with the tests, which mean their own ``harness`` when they import one.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from nsa_harness.start import ROOT

if TYPE_CHECKING:
    import pytest


def hidden_by() -> str:
    """The folder of another ``harness`` that ``import`` would find, empty when it finds ours."""
    found = find_spec("harness")
    places = [] if found is None else list(found.submodule_search_locations or ())
    return "" if places and Path(places[0]).resolve() == Path(ROOT, "harness") else ", ".join(places) or "nothing"


OTHER = hidden_by()

if not OTHER:
    from harness.pytest_plugin import *
else:

    def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
        """The option that cannot be had here."""
        parser.getgroup("hang guard", "nsa-harness").addoption(
            "--hang-guard", action="store_true", help=f"Not to be had here: the package harness is {OTHER}."
        )

    def pytest_configure(config: pytest.Config) -> None:
        """Refuse the option, with what to do; leave every other session alone."""
        config.addinivalue_line("markers", "hang_guard: of nsa-harness, which is hidden here")
        if config.getoption("hang_guard"):
            import pytest

            raise pytest.UsageError(
                f"--hang-guard: the package harness of nsa-harness is hidden by {OTHER}; "
                "watch the whole session instead: nsa-harness run -- python -m pytest"
            )
