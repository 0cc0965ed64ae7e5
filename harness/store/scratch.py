"""Folders for a while: gone afterwards, and those of whoever was killed with the next one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator


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
