"""Write whole files so that a reader sees the old text or the new one, and say what is safe when that fails."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from harness.core.errors import (
    DamagedError,
    FailingDiskError,
    FullDiskError,
    JournalError,
    NoPlaceError,
    NoRunError,
    NotWritableError,
    NoWayError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


_KINDS = {
    errno.EACCES: NotWritableError, errno.EPERM: NotWritableError, errno.EROFS: NotWritableError,
    errno.ENOSPC: FullDiskError, errno.EDQUOT: FullDiskError, errno.EIO: FailingDiskError,
    errno.ENOENT: NoWayError, errno.ENOTDIR: NoWayError,
}  # fmt: skip

MOST_BYTES = 1 << 28
"""What is read whole: nothing of ours is a hundredth of it, and a file without end must not fill the memory."""


def read_text(path: Path, *, most: int = MOST_BYTES) -> str:
    """The text of a regular file of at most ``most`` bytes; waits for nobody, also where a named pipe lies.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger.
        UnicodeDecodeError: it is not UTF-8.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        at = os.fstat(descriptor)
        if not stat.S_ISREG(at.st_mode):
            raise OSError(errno.EINVAL, "it is a folder, a pipe or a device, not a file", str(path))
        content = file.read(most + 1) if at.st_size <= most else b""  # of a file in /proc the size is 0
    if at.st_size > most or len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return content.decode()


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in the file at ``path`` of a run directory.

    Raises:
        NoRunError: it is not there.
        StoreError: it cannot be read.
        DamagedError: it is not JSON.
        JournalError: it is another JSON value.
    """
    import json

    try:
        data: object = json.loads(read_text(path))
    except FileNotFoundError as error:
        raise NoRunError(f"{path.parent} is not a run directory, or was never begun: {path.name} is missing") from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}. Nothing was changed.") from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise JournalError(f"{path}: expected an object, got {type(data).__name__} {data!r:.80}")
    return cast("dict[str, Any]", data)


def checksum(text: str) -> str:
    """What shows that ``text`` is as it was written."""
    import hashlib

    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


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


@contextmanager
def outside_of_runs(place: Path) -> Generator[None]:
    """Around the writing of files that are no part of a run: what fails there calls for another place, not a run's.

    Raises:
        NoPlaceError: they could not be written at ``place``.
    """
    try:
        yield
    except OSError as error:
        raise NoPlaceError(write_failed(place, error, safe="no run was touched")) from error
    except StoreError as error:
        raise NoPlaceError(error) from error


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
                import shutil

                shutil.copyfile(file, other)
    except OSError as error:
        raise write_failed(folder, error, safe="the run that is linked from is unchanged") from error


def beside(path: Path, name: str) -> Path:
    """``NAME-1`` beside ``path``, or the first number after it that nothing has yet."""
    number = 1
    while (other := path.with_name(f"{name}-{number}")).exists():
        number += 1
    return other


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_failed(path: Path, error: OSError, *, safe: str) -> StoreError:
    """The error for a failed write: what and where, what is safe; its class says what to do."""
    what = f"cannot write {path}: {error.strerror or error}"
    kind = _KINDS.get(error.errno or 0, StoreError)
    if kind is FullDiskError:
        what += f" ({_free(path)})"
    failed = kind(f"{what}. Safe: {safe}.")
    failed.what = what
    return failed


@contextmanager
def naming_full_disk(folder: Path, *, safe: str) -> Generator[None]:
    """A write below ``folder`` that finds a full disk within is the StoreError that says so; other errors are not."""
    try:
        yield
    except OSError as error:
        if _KINDS.get(error.errno or 0) is not FullDiskError:
            raise
        raise write_failed(folder, error, safe=safe) from error


def _free(path: Path) -> str:
    place = path.absolute().parent
    while not os.path.ismount(place):
        place = place.parent
    try:
        at = os.statvfs(place)
    except OSError as error:
        return f"free space unknown: {error.strerror}"
    return f"{at.f_bavail * at.f_frsize / 1e6:.1f} MB and {at.f_favail} files free in the file system at {place}"
