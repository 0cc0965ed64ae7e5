"""Runs pytest; the few tests that fail beside others are run once more, alone, and must pass then.

    python tests/again.py -n 3 tests/unit

Many tests are about clocks: what is told within ten seconds, what ends within two. Beside three others on two busy
cores such a test can lose its seconds without anything being wrong. What fails twice, or is one of many, is wrong.
Both runs are printed, and the names of what passed only alone come last: one that comes again and again is to mend.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
HALVES = (("nsa", "train", "gpu"), ("arch", "contract", "integration", "property", "strangers", "unit"))
"""The folders of tests, in two parts that take about as long to compile."""

FEW = 8
"""So many failures may be the machine's; more are the code's, and are not tried again."""


class Failures:
    """The tests that failed, in whichever part, and whether all could be collected."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.is_whole = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.names[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.is_whole = self.is_whole and not report.failed


def compile_once() -> None:
    """In a fresh clone, write the bytecode of all tests and of what they import, which else every worker would make.

    What goes wrong in it goes wrong in the run as well, and is told there.
    """
    bytecode = Path(cache_from_source(TESTS / "conftest.py")).parent
    if sys.dont_write_bytecode or any(bytecode.glob("conftest.*-pytest-*.pyc")):
        return
    command = (sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider")
    halves = [
        subprocess.Popen([*command, *(str(TESTS / folder) for folder in half)], stdout=subprocess.DEVNULL)
        for half in HALVES
    ]
    for collection in halves:
        collection.wait()


def main(argv: list[str]) -> int:
    """The exit status of pytest, of the second run where there was one."""
    sys.path[0] = str(Path.cwd())  # as ``python -m pytest`` has it
    compile_once()
    failures = Failures()
    status = pytest.main(argv, plugins=[failures])
    if status != pytest.ExitCode.TESTS_FAILED or not failures.is_whole or not 0 < len(failures.names) <= FEW:
        return int(status)
    print(f"{len(failures.names)} failed beside others; once more, alone:", *failures.names, sep="\n  ", flush=True)
    status = subprocess.run([sys.executable, "-m", "pytest", *failures.names], check=False).returncode
    if status == 0:
        print("passed only alone:", *failures.names, sep="\n  ", flush=True)
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
