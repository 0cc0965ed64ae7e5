"""The command line starts light: what a question does not need is never imported, for each import is time at a prompt.

Seconds depend on the machine and what else runs there; the number of modules does not. Measured on Python 3.11, click
alone takes 4.5 times a bare interpreter's start, ``--help`` 2.3 and ``report --list`` 3.3 times: bench/startup.py.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.cli.front import COMMANDS, help_text
from harness.store import shelf

HEAVY = ("torch", "numpy", "triton", "pydantic", "ruamel", "jinja2", "psutil")

PROGRAM = """
import sys
from nsa_harness.start import entry
sys.argv[1:] = {argv!r}
try:
    entry()
except SystemExit as end:
    code = end.code or 0
print("LOADED", code, ",".join(sorted(sys.modules)))
"""


def loaded_by(*argv: str, first: str = "", cwd: object = None) -> tuple[int, set[str]]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", first + PROGRAM.format(argv=list(argv))],
        capture_output=True,
        text=True,
        check=True,
        cwd=cwd,
    )
    last = done.stdout.splitlines()[-1].split(" ")
    assert last[0] == "LOADED"
    return int(last[1]), set(last[2].split(","))


def ours(modules: set[str]) -> list[str]:
    return sorted(name for name in modules if name.split(".")[0] in ("harness", "nsa_harness"))


@pytest.mark.parametrize("argv", [("--help",), ("--version",), ("bisect", "--help"), ("selftest", "--help")])
def test_help_loads_nothing_heavy(argv: tuple[str, ...]):
    code, modules = loaded_by(*argv)
    assert (code, modules & set(HEAVY)) == (0, set())


def test_the_first_help_imports_the_table_of_commands_alone():
    code, modules = loaded_by("--help")
    assert code == 0
    assert ours(modules) == [
        "harness", "harness.__main__", "harness.cli", "harness.cli.front", "nsa_harness", "nsa_harness.start",
    ]  # fmt: skip
    assert not modules & {"click", "dataclasses", "inspect", "pathlib", "json", "subprocess", "socket"}


def test_the_help_that_click_gives_is_the_same():
    from click.testing import CliRunner

    from harness.cli.main import main

    assert CliRunner().invoke(main, ["--help"]).stdout == f"{help_text()}\n"


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_the_table_of_commands_fits_the_terminal(columns):
    table = help_text(columns).partition("Commands:")[2].partition("Examples:")[0]

    assert max(map(len, table.splitlines())) <= min(columns, 80)
    assert [line.split()[0] for line in table.splitlines() if line[2:3].strip()] == list(COMMANDS)


def test_a_list_of_runs_imports_none_of_what_a_run_is_made_of(tmp_path):
    code, modules = loaded_by("report", "--list", cwd=tmp_path)
    assert code == 5  # there is none
    assert ours(modules) == [
        "harness", "harness.__main__", "harness.cli", "harness.cli.exit_codes",
        "harness.cli.fitting", "harness.cli.front", "harness.cli.streams", "harness.core", "harness.core.errors",
        "harness.report", "harness.report.clean", "harness.settings", "harness.store", "harness.store.files",
        "harness.store.layout", "harness.store.redact", "harness.store.shelf", "nsa_harness", "nsa_harness.start",
    ]  # fmt: skip
    assert not modules & {"click", "subprocess", "socket", "difflib", "traceback", "tarfile", "tempfile"}


def test_a_list_of_runs_that_are_there_imports_the_journal_beside_that(tmp_path, kept_run):
    code, modules = loaded_by("report", "--list", "--runs", str(kept_run.parent), cwd=tmp_path)
    assert code == 0
    assert "click" not in modules
    if sys.version_info < (3, 12):  # from then on dataclasses uses inspect
        assert not modules & {"ast", "tokenize"}
    core = [name for name in ours(modules) if name.startswith(("harness.core.", "harness.store."))]
    assert core == [
        "harness.core.codec", "harness.core.errors", "harness.store.files", "harness.store.journal",
        "harness.store.layout", "harness.store.redact", "harness.store.shelf",
    ]  # fmt: skip


def test_a_list_of_runs_that_were_left_imports_no_journal(tmp_path, kept_run):
    shelf.keep(kept_run)
    code, modules = loaded_by("report", "--list", "--runs", str(kept_run.parent), cwd=tmp_path)
    assert code == 0
    assert not modules & {"harness.store.journal", "harness.core.codec", "hashlib"}


@pytest.fixture
def kept_run():
    from pathlib import Path

    from harness.store.archive import unpacked

    bundles = Path(__file__).parents[2] / "reports"
    return unpacked(next(path for path in sorted(bundles.iterdir()) if path.is_dir()))


def test_the_guard_sees_a_heavy_module():
    assert loaded_by("--help", first="import pydantic\n")[1] & set(HEAVY) == {"pydantic"}


def test_the_python_interface_imports_nothing_before_it_is_used():
    code = "import sys, nsa_harness; print(*(m for m in sys.modules if m.startswith('nsa_harness.')))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_part_of_nsa_that_the_controller_reads_loads_no_torch():
    code = "import nsa.config, nsa.blocks, nsa.env, nsa.errors, nsa.train.probe, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
