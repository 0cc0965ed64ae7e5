"""The installed command's very first moments: Ctrl-C while it is still being imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

INTERRUPTS = """
import os, signal, sys
name = os.environ["INTERRUPTED_AT"]
def at_import(event, arguments):
    if event == "import" and arguments[0] == name:
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))
sys.addaudithook(at_import)
"""
"""Python runs this before anything of ours; the signal comes when the module of that name is imported."""


@pytest.mark.parametrize("module", ["harness.__main__", "harness.cli.main", "click"])
def test_ctrl_c_while_the_command_is_imported_is_130_and_no_traceback(tmp_path, module):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    assert signalled(tmp_path, module, signal.SIGINT) == (130, "", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_closed_terminal_and_sigterm_are_answered_then_too(tmp_path, number, code):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    assert signalled(tmp_path, "click", number) == (code, "", "")


@pytest.mark.parametrize("name", ["queue", "platform", "logging", "json", "struct"])
def test_a_module_of_the_programs_that_is_called_like_pythons_is_the_programs(tmp_path, name):
    (tmp_path / f"{name}.py").write_text(f"MINE = {name!r}\n")
    program = f"import {name}; print('it is', {name}.MINE)"
    command = [Path(sys.executable).with_name("nsa-harness"), "run", "--", sys.executable, "-c", program]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.startswith("PASS"), done.stdout + done.stderr


def signalled(place, module, number):
    """Exit status, output and complaint of a command that gets this signal as it imports ``module``.

    It listens to it as a command in a terminal does, also where the tests were begun by ``nohup``.
    """
    listening = partial(signal.signal, number, signal.SIG_DFL)
    env = {**os.environ, "PYTHONPATH": str(place), "INTERRUPTED_AT": module, "SIGNAL": str(int(number))}
    command = Path(sys.executable).with_name("nsa-harness")
    done = subprocess.run(
        [command, "--version"], env=env, capture_output=True, text=True, check=False, preexec_fn=listening
    )
    return done.returncode, done.stdout, done.stderr
