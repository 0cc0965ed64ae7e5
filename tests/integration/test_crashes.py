"""Programs that fail as people's do: the verdict names the line at fault, and no other."""

from __future__ import annotations

import pytest

from bench.crashes import CRASHES, run, wrong

QUICK = sorted(name for name, crash in CRASHES.items() if not (crash.gpu or crash.torch))


@pytest.mark.parametrize("name", QUICK)
def test_a_crash_names_the_programs_own_line_and_what_was_raised_there(name, tmp_path):
    if name in ("rich", "typer"):
        pytest.importorskip(name)
    assert wrong(CRASHES[name], run(CRASHES[name], tmp_path)) == []
