"""The fork server: one per environment, started again when it dies, and honest about imports that fail or hang."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from harness.clock import WallClock
from harness.core.errors import LaunchError
from harness.launch import forkserver, procs
from harness.launch.forkserver import ForkserverExecutor
from harness.testing.executors import ENV, Ear, program, running, wait_exit, wait_gone


@pytest.fixture
def modules(tmp_path: Path) -> dict[str, str]:
    """An environment with three importable modules."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "remembers.py").write_text("import os\nSEEN = os.environ.get('LEVEL')\n")
    (folder / "broken.py").write_text("import nothing_of_this_name\n")
    (folder / "waits_forever.py").write_text("import threading\nthreading.Event().wait()\n")
    return {**ENV, "PYTHONPATH": str(folder)}


def server_of(handle_pid: int) -> int:
    worker = procs.read(handle_pid)
    assert worker is not None
    supervisor = procs.read(worker.parent)
    assert supervisor is not None
    guard = procs.read(supervisor.parent)
    assert guard is not None
    return guard.parent


def test_each_environment_has_its_own_server_and_equal_ones_share_it(tmp_path: Path, modules: dict[str, str]):
    code = "import remembers; say(seen=remembers.SEEN, level=os.environ['LEVEL']); wait()"
    servers = []
    with closing(ForkserverExecutor(python=sys.executable, preload=("remembers",))) as executor:
        for number, level in enumerate("ABA"):
            env = tuple(sorted({**modules, "LEVEL": level}.items()))
            with running(executor, tmp_path / str(number), code, env=env) as (handle, ear):
                # Read when it was imported, before the trial was known: still the trial's own value.
                assert ear.hear() == {"seen": level, "level": level}
                servers.append(server_of(handle.pid))

    assert servers[0] == servers[2] != servers[1]


def test_a_dead_server_is_started_again(tmp_path: Path):
    with closing(ForkserverExecutor(python=sys.executable, preload=())) as executor:
        with running(executor, tmp_path / "one", "say(pid=os.getpid()); wait()") as (handle, ear):
            ear.hear()
            server = procs.read(server_of(handle.pid))
            assert server is not None
            procs.send(server, 9)
            wait_gone([server])
            assert handle.poll() is None, "a trial does not need its server any more"
        with running(executor, tmp_path / "two", "sys.exit(4)") as (handle, _):
            assert wait_exit(handle).code == 4


def test_an_import_that_fails_is_a_launch_error_with_the_traceback(tmp_path: Path, modules: dict[str, str]):
    with closing(ForkserverExecutor(python=sys.executable, preload=("json", "broken"))) as executor:
        command = program(tmp_path / "t", "", env=tuple(modules.items()))
        with pytest.raises(LaunchError, match=r"(?s)did not import json, broken.*nothing_of_this_name"):
            executor.start(command)


def test_an_import_that_hangs_is_a_launch_error_that_shows_where(tmp_path: Path, modules: dict[str, str]):
    command, clock = program(tmp_path / "t", "", env=tuple(modules.items())), WallClock()
    began_s = clock.now()
    with closing(ForkserverExecutor(python=sys.executable, preload=("json",))) as executor:
        executor.prepare(command)
    limit_s = max(1.0, 10 * (clock.now() - began_s))  # so that it is in that import long before, on any machine

    executor = ForkserverExecutor(python=sys.executable, preload=("waits_forever",), preload_limit_s=limit_s)
    said = r"(?s)did not import waits_forever in [\d.]+ s; .*waits_forever\.py"
    with closing(executor), pytest.raises(LaunchError, match=said):
        executor.start(command)


def test_a_server_that_is_stopped_while_it_imports_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(forkserver, "LATE", 0.5)
    (tmp_path / "stops_itself.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n")
    command = program(tmp_path / "t", "", env=(("PYTHONPATH", str(tmp_path)),))

    executor = ForkserverExecutor(python=sys.executable, preload=("stops_itself",))
    with closing(executor), pytest.raises(LaunchError, match="did not import stops_itself, or was stopped"):
        executor.start(command)


def test_a_server_that_hangs_in_an_import_dies_with_its_controller(tmp_path: Path, modules: dict[str, str]):
    with closing(Ear(tmp_path)) as ear:
        (tmp_path / "modules" / "says_and_waits.py").write_text(
            f"import os, threading\n"
            f"open({str(tmp_path / 'ear')!r}, 'w').write('{{\"pid\": %d}}\\n' % os.getpid())\n"
            f"threading.Event().wait()\n"
        )
        code = (
            "import sys; from harness.core.command import Command; "
            "from harness.launch.forkserver import ForkserverExecutor; "
            "command = Command(argv=(), env=(('PYTHONPATH', sys.argv[1]),), trial_dir='', entry='says_and_waits:run'); "
            "ForkserverExecutor(python=sys.executable, preload=('says_and_waits',)).prepare(command)"
        )
        argv = [sys.executable, "-P", "-c", code, modules["PYTHONPATH"]]
        with subprocess.Popen(argv) as controller:
            (server,) = ear.hear_processes(1)
            assert server.command == "nsa-forkserver"
            controller.kill()
        wait_gone([server])


def test_what_cannot_be_forked_is_refused_with_the_way_out(tmp_path: Path):
    executor = ForkserverExecutor(python=sys.executable, preload=())
    with closing(executor), pytest.raises(LaunchError, match="use the executor 'local'"):
        executor.start(program(tmp_path / "t", "", entry=None))


def test_an_interpreter_that_is_not_there_is_a_launch_error(tmp_path: Path):
    executor = ForkserverExecutor(python="/no/such/python", preload=())
    with closing(executor), pytest.raises(LaunchError, match="/no/such/python"):
        executor.start(program(tmp_path / "t", ""))
