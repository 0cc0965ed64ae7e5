"""The command line starts light: what a login node without torch needs is never loaded by accident."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "triton", "rich", "pydantic", "ruamel", "jinja2", "psutil")

PROGRAM = """
import sys
from harness.cli.main import main
try:
    main({argv!r}, prog_name="nsa-harness")
except SystemExit as end:
    code = end.code or 0
loaded = [name for name in {heavy!r} if name in sys.modules]
print("LOADED", code, ",".join(loaded))
"""


def loaded_by(*argv: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM.format(argv=list(argv), heavy=HEAVY)],
        capture_output=True,
        text=True,
        check=True,
    )
    last = done.stdout.splitlines()[-1].split(" ")
    assert last[0] == "LOADED"
    return int(last[1]), [name for name in last[2].split(",") if name]


@pytest.mark.parametrize("argv", [("--help",), ("--version",), ("bisect", "--help"), ("selftest", "--help")])
def test_help_loads_nothing_heavy(argv: tuple[str, ...]):
    assert loaded_by(*argv) == (0, [])


def test_the_guard_sees_a_heavy_module():
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import rich\n" + PROGRAM.format(argv=["--help"], heavy=HEAVY)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "LOADED 0 rich"


def test_the_part_of_nsa_that_the_controller_reads_loads_no_torch():
    code = "import nsa.config, nsa.blocks, nsa.env, nsa.errors, nsa.train.probe, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
