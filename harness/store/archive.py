"""Archive: a run's journal and evidence in one small file, and back in a folder that every command reads."""

from __future__ import annotations

import atexit
import io
import lzma
import shutil
import tarfile
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import DamagedError
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST_BYTES = 256 * 2**20
"""More than any run's evidence; an archive that claims to hold more is not unpacked."""


def packed(files: Mapping[str, bytes]) -> bytes:
    """``files``, contents by their relative paths, as a tar.xz: the same bytes for the same files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            archive.addfile(entry, io.BytesIO(files[name]))
    return lzma.compress(out.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def unpacked(bundle: Path) -> Path:
    """The run directory that the evidence of ``bundle`` holds, in a temporary folder that goes with this process.

    Raises:
        DamagedError: the file is not as it was written, or holds what no bundle does.
    """
    path = layout.archive(bundle).resolve()
    return _unpacked(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _unpacked(path: Path, written_ns: int) -> Path:
    """As :func:`unpacked`; ``written_ns`` tells a file that was written again."""
    folder = Path(tempfile.mkdtemp(prefix="nsa-harness-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run_dir = folder / path.parent.name
    run_dir.mkdir()
    try:
        with tarfile.open(path, mode="r:xz") as archive:
            members = archive.getmembers()
            if sum(member.size for member in members) > LARGEST_BYTES or not all(m.isfile() for m in members):
                raise DamagedError(f"{path}: it holds what the evidence of a run does not: links, or too much")
            archive.extractall(run_dir, members, filter="data")
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise DamagedError(f"{path}: it cannot be unpacked: {error}") from error
    return run_dir
