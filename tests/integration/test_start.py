"""The installed command's very first moments: Ctrl-C while it is still being imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from harness.cli.exit_codes import tell

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


IN_A_CALLBACK = """
import os, signal, sys
def at_call(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "cb" and frame.f_locals.get("name") == "harness.solo":
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)
sys.setprofile(at_call)
"""
"""The signal comes in a callback of the import system, where Python drops whatever is raised."""


def test_ctrl_c_that_python_drops_in_a_callback_ends_the_run_too(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(IN_A_CALLBACK)
    done = begun_with(tmp_path, "run", "--", "sleep", "20")
    assert "Exception ignored in" in done.stderr
    assert (done.returncode, "asked to stop" in done.stderr) == (130, True), done.stderr


WITHIN_CLICK = """
import os, signal, sys
def at_call(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "make_context":
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)
sys.setprofile(at_call)
"""
"""The signal comes in code of click's, which would make 1 of it: a finding."""


def test_ctrl_c_in_clicks_own_code_is_130(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHIN_CLICK)
    done = begun_with(tmp_path, "run", "--", "true")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_that_python_hands_on_as_another_error_is_one(capsys):
    error = RuntimeError("Error calling __set_name__ on a cached_property")
    error.__cause__ = KeyboardInterrupt()
    assert tell(error) == 130
    assert "nsa-harness: interrupted" in capsys.readouterr().err


def begun_with(place, *argv):
    """What becomes of the command that has ``place`` on its path, and listens to Ctrl-C as one in a terminal does."""
    listening = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    path = os.pathsep.join(filter(None, (str(place), os.environ.get("PYTHONPATH"))))
    command, env = Path(sys.executable).with_name("nsa-harness"), {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [command, *argv],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
        preexec_fn=listening,
        timeout=60,
    )


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
