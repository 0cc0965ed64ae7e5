"""Small files that a reader sees whole or not at all."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def put(path: Path, text: str) -> bool:
    """Put ``text`` at ``path`` in one step; False, and a line on standard error, when the disk refuses.

    No fsync: the text has to outlive this process, not the machine.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        sys.stderr.write(f"nsa-harness: {path.name} cannot be written: {error.strerror}\n")
        sys.stderr.flush()
        return False
    return True
