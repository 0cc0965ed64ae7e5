"""Folders: that of a new run, and the lock by which at most one controller works in it; and folders for a while."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import NoFolderError, NotBegunError, RunBusyError, StoreError
from harness.store import layout
from harness.store.files import write_failed

if TYPE_CHECKING:
    from collections.abc import Generator

    from harness.core.campaign import CampaignSpec


def name_of(question: CampaignSpec, *, wall: str) -> str:
    """``20260102-030405-n_layers``: when a run was begun, in UTC; its axis, or its matrix and the search in it."""
    about = "-".join(filter(None, (question.matrix.name, question.search)))
    digits = re.sub(r"\D", "", wall)[:14].ljust(14, "0")
    return f"{digits[:8]}-{digits[8:]}-{re.sub(r'[^A-Za-z0-9_]+', '-', about).strip('-')}"


@contextmanager
def begun(runs_dir: Path, *, name: str) -> Generator[Path]:
    """A new run's folder (``new_folder``), which is taken away again where what comes first cannot be written into it.

    Raises:
        NotBegunError: something could not be written, by a full disk for example.
    """
    run_dir = new_folder(runs_dir, name=name)
    try:
        yield run_dir
    except StoreError as error:
        shutil.rmtree(run_dir, ignore_errors=True)
        raise NotBegunError(error) from error


def new_folder(runs_dir: Path, *, name: str) -> Path:
    """An empty folder of that name in ``runs_dir``, with a number behind it where there is one already.

    Raises:
        StoreError: it cannot be made.
    """
    number = 1
    while True:
        run_dir = runs_dir / (name if number == 1 else f"{name}-{number}")
        try:
            runs_dir.mkdir(parents=True, exist_ok=True)
            run_dir.mkdir(mode=0o700)  # what programs print may hold what nobody else is to read
        except FileExistsError:
            if not runs_dir.is_dir():
                raise NoFolderError(f"{runs_dir} is a file, and runs are kept in a folder") from None
            number += 1
        except OSError as error:
            raise NotBegunError(write_failed(run_dir, error, safe="nothing was begun")) from error
        else:
            return run_dir


def hold(run_dir: Path) -> int:
    """A descriptor that holds the run until it is closed.

    Raises:
        RunBusyError: another controller holds it; the message names its PID.
        StoreError: the folder may not be written to.
    """
    # flock belongs to the open file, not to the process: it ends with the last descriptor, so it must not reach a
    # child (O_CLOEXEC; executors start children through exec).
    path = layout.lock(run_dir)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise write_failed(path, error, safe="nothing was changed") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        who = f"PID {holder}" if holder else "another controller"
        raise RunBusyError(f"{run_dir} is in use by {who}") from error
    except OSError as error:
        os.close(descriptor)
        raise write_failed(path, error, safe="nothing was changed") from error
    return descriptor


@contextmanager
def scratch(prefix: str) -> Generator[Path]:
    """A folder that is gone afterwards, and with it every other one of this prefix whose lock nobody holds."""
    for lock_file in Path(tempfile.gettempdir()).glob(f"{prefix}*/lock"):
        with suppress(OSError), lock_file.open("r+") as lock:  # it is in use, or may not be opened
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock_file.parent.lstat().st_uid == os.getuid():  # root could remove anybody's
                shutil.rmtree(lock_file.parent)
    with tempfile.TemporaryDirectory(prefix=prefix) as place:
        folder = Path(place, "trials")
        folder.mkdir()
        with Path(place, "lock.new").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            Path(lock.name).rename(Path(place, "lock"))  # it is held before anybody can find it
            yield folder
