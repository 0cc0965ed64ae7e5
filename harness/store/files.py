"""Write whole files so that a reader sees the old text or the new one, and say what is safe when that fails."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from harness.core.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path


def write_atomic(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` at once or not at all: temporary file, fsync, rename, fsync of the folder.

    Raises:
        StoreError: the disk is full or failing, or the folder may not be written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):  # the half-written temporary file is in nobody's way
            temporary.unlink()
        safe = "the file as it was before is unchanged" if path.exists() else "no other file was touched"
        raise write_failed(path, error, safe=safe) from error


def link_files(source: Path, folder: Path) -> None:
    """The files right below ``source``, if it is there, also in ``folder``: as hard links, or copies where none can be.

    Raises:
        StoreError: the disk is full or failing, or the folder may not be written to.
    """
    files = [path for path in source.iterdir() if path.is_file()] if source.is_dir() else []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            other = folder / file.name
            other.unlink(missing_ok=True)
            try:
                other.hardlink_to(file)
            except OSError:  # another file system, or one without links; a disk that fails will say so again
                shutil.copyfile(file, other)
    except OSError as error:
        raise write_failed(folder, error, safe="the run that is linked from is unchanged") from error


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_failed(path: Path, error: OSError, *, safe: str) -> StoreError:
    """The error for a failed write: what and where, what is safe, what to do."""
    what = f"cannot write {path}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what += f" ({_free(path)})"
    return StoreError(f"{what}. Safe: {safe}. {_advice(error)}")


def _free(path: Path) -> str:
    try:
        at = os.statvfs(path.parent if path.parent.exists() else "/")
    except OSError as error:
        return f"free space unknown: {error.strerror}"
    return f"{at.f_bavail * at.f_frsize / 1e6:.1f} MB and {at.f_favail} files free there"


def _advice(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space, then continue with --resume."
    if error.errno == errno.EIO:
        return "The disk reports an error: copy the run directory elsewhere and --resume the copy."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Choose a place that you may write to with --runs."
    return "Put that right, then continue with --resume."
