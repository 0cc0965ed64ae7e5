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

from harness.core.errors import DamagedArchiveError
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
        DamagedArchiveError: the file is not as it was written, or holds what no bundle does.
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
        content = _decoded(path)
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            members = archive.getmembers()
            if not all(member.isfile() for member in members):
                raise DamagedArchiveError(f"{path}: it holds what the evidence of a run does not: links")
            archive.extractall(run_dir, members, filter="data")
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise DamagedArchiveError(f"{path}: it cannot be unpacked: {error}") from error
    return run_dir


def _decoded(path: Path) -> bytes:
    """The whole stream in ``path``: tarfile stops at its last member, before the checksums of what it has read.

    Raises:
        DamagedArchiveError: the stream has no end, holds too much, or something lies behind it.
        LZMAError: its own checksums say that it is not as it was written.
    """
    decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    content = decoder.decompress(path.read_bytes(), max_length=LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise DamagedArchiveError(f"{path}: it holds what the evidence of a run does not: too much")
    if not decoder.eof:
        raise DamagedArchiveError(f"{path}: its end is missing")
    if decoder.unused_data:
        raise DamagedArchiveError(f"{path}: {len(decoder.unused_data)} bytes lie behind its end")
    return content
