"""What a killed tree made in shared memory and in the temporary folder is removed; whatever else it used is not."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.launch import leftovers, procs
from harness.launch.leftovers import Leftovers, before, orphans, remaining, remove, used_by
from harness.launch.local import LocalExecutor
from harness.testing.executors import ENV, running, stop, wait_gone

pytestmark = pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no shared memory here")

LEAVES = """
import mmap, socket, tempfile
def keep(path):
    with open(path, "wb") as file:
        file.write(b"x" * 4096)
    return mmap.mmap(os.open(path, os.O_RDWR), 4096)
maps = [keep(f"/dev/shm/torch_{os.getpid()}_1_0"), keep(f"/dev/shm/other_{os.getpid()}")]
place = os.path.join(tempfile.gettempdir(), "pymp-abc12345")
os.mkdir(place)
listener = socket.socket(socket.AF_UNIX)
listener.bind(os.path.join(place, "listener-abc"))
open(os.path.join(tempfile.gettempdir(), "checkpoint"), "w").close()
say(pid=os.getpid())
wait()
"""

USES = """
import glob, socket, tempfile
files = [open(path, "r+b") for path in PATHS if os.path.isfile(path)]
for path in PATHS:
    if os.path.isdir(path):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.path.join(path, "listener-abc"))
        files.append(listener)
        files.append(open(os.path.join(path, "train.log"), "a"))
say(pid=os.getpid())
wait()
"""


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    made = LocalExecutor(python=sys.executable)
    yield made
    made.close()


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A short path: the name of a UNIX socket has room for 107 characters."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def surroundings(temporary: Path, **more: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({**ENV, "TMPDIR": str(temporary), **more}.items()))


def shared(pid: int) -> list[str]:
    """The names that ``LEAVES`` takes in shared memory."""
    return [name for name in (f"torch_{pid}_1_0", f"other_{pid}") if (Path("/dev/shm") / name).exists()]


def test_what_the_tree_made_is_removed_and_named_and_what_is_not_shown_to_be_its_own_stays_and_is_named(
    executor: LocalExecutor, tmp_path: Path, temporary: Path
):
    with running(executor, tmp_path / "trial", LEAVES, env=surroundings(temporary)) as (handle, ear):
        (worker,) = ear.hear_processes(1)
        cleanup = stop(handle, grace_s=0.0)
    other = Path(f"/dev/shm/other_{worker.pid}")
    try:
        assert shared(worker.pid) == [other.name]
        assert cleanup.kept == (str(other),)
    finally:
        other.unlink()

    assert [path.name for path in temporary.iterdir()] == ["checkpoint"]
    pymp = temporary / "pymp-abc12345"
    assert set(cleanup.removed) == {f"/dev/shm/torch_{worker.pid}_1_0", str(pymp), f"{pymp}/listener-abc"}
    assert cleanup.gone


@pytest.mark.parametrize("ending", ["controller", "supervisor"])
def test_files_that_are_older_than_the_trial_stay_whatever_they_are_called(
    executor: LocalExecutor, tmp_path: Path, temporary: Path, ending: str
):
    data = Path(f"/dev/shm/dataset_{os.getpid()}")
    tensor = Path(f"/dev/shm/torch_{os.getpid()}_77_0")
    folders = [temporary / "torchelastic_experiments", temporary / "pymp-abcd1234", temporary / "torchelastic_abcd1234"]
    for folder in folders:
        folder.mkdir()
        (folder / "best.pt").write_text("precious")
    paths = [data, tensor, *folders]
    code = f"PATHS = {[str(path) for path in paths]}\n{USES}"
    try:
        for path in (data, tensor):
            path.write_bytes(b"x" * 4096)
        with running(executor, tmp_path / "trial", code, env=surroundings(temporary)) as (handle, ear):
            (worker,) = ear.hear_processes(1)
            if ending == "supervisor":
                supervisor = procs.read(worker.parent)
                assert supervisor is not None
                assert procs.send(supervisor, signal.SIGTERM)
                wait_gone([worker, supervisor])
            removed = stop(handle, grace_s=0.0).removed

        assert removed == ()
        assert all(path.exists() for path in paths)
        assert all((folder / "best.pt").read_text() == "precious" for folder in folders)
    finally:
        for path in (data, tensor):
            path.unlink(missing_ok=True)


def test_a_file_that_another_program_made_while_the_trial_ran_stays_and_is_named(
    executor: LocalExecutor, tmp_path: Path, temporary: Path
):
    data = Path(f"/dev/shm/psm_{os.getpid():x}")
    code = f"go = open(HERE / 'go').read(); PATHS = [{str(data)!r}]\n{USES}"
    (tmp_path / "trial").mkdir()
    os.mkfifo(tmp_path / "trial" / "go")
    (tmp_path / "trial").rename(tmp_path / "made")
    try:
        with running(
            executor, tmp_path / "trial", code.replace("HERE / 'go'", repr(str(tmp_path / "made" / "go")))
        ) as (
            handle,
            ear,
        ):
            data.write_bytes(b"x" * 4096)
            (tmp_path / "made" / "go").write_text("now")
            ear.hear_processes(1)
            cleanup = stop(handle, grace_s=0.0)
        assert (cleanup.removed, cleanup.kept) == ((), (str(data),))
        assert data.exists()
    finally:
        data.unlink(missing_ok=True)


def test_a_supervisor_that_is_alone_clears_up_as_well(executor: LocalExecutor, tmp_path: Path, temporary: Path):
    with running(executor, tmp_path / "trial", LEAVES, env=surroundings(temporary)) as (handle, ear):
        (worker,) = ear.hear_processes(1)
        supervisor = procs.read(worker.parent)
        assert supervisor is not None
        assert procs.send(supervisor, signal.SIGTERM)
        wait_gone([worker, supervisor])
        stop(handle, grace_s=0.0)
    other = Path(f"/dev/shm/other_{worker.pid}")
    try:
        assert shared(worker.pid) == [other.name]
        assert not (temporary / "pymp-abc12345").exists()
    finally:
        other.unlink()


def test_of_a_librarys_folder_only_the_librarys_own_files_go(temporary: Path):
    folder = temporary / "torchelastic_abcd1234" / "none_x" / "attempt_0" / "0"
    folder.mkdir(parents=True)
    (folder / "error.json").write_text("{}")
    (folder.parent / "notes.txt").write_text("mine")
    top = str(temporary / "torchelastic_abcd1234")

    removed = remove(Leftovers(own=frozenset({top})))

    assert removed == (f"{folder}/error.json", str(folder))
    assert (folder.parent / "notes.txt").read_text() == "mine"
    assert remaining(Leftovers(own=frozenset({top}))) == (top,)


def test_a_symbolic_link_is_never_followed(temporary: Path, tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "error.json").write_text("precious")
    link = temporary / "torchelastic_abcd1234"
    link.symlink_to(tmp_path / "data")
    inside = temporary / "pymp-abcd1234"
    inside.mkdir()
    (inside / "listener-x").symlink_to(tmp_path / "data" / "error.json")

    remove(Leftovers(own=frozenset({str(link), str(inside)})))

    assert (tmp_path / "data" / "error.json").read_text() == "precious"
    assert link.is_symlink()


def test_what_this_very_process_uses_is_its_own_only_when_new(temporary: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leftovers, "SHARED", str(temporary))
    name = f"torch_{os.getpid()}_7_0"
    (temporary / name).touch()
    since = before({})
    (temporary / f"torch_{os.getpid()}_8_0").touch()

    assert used_by([os.getpid()], since=since).own == {f"{temporary}/torch_{os.getpid()}_8_0"}


def test_files_of_processes_that_are_gone_are_named_by_doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(leftovers, "SHARED", str(tmp_path))
    for pid in (os.getpid(), 2**22 + 9):
        (tmp_path / f"torch_{pid}_7_0").touch()

    assert orphans() == (f"{tmp_path}/torch_{2**22 + 9}_7_0",)
