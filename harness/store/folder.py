"""Folder: the name of a new run directory, and its making."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.core.errors import NoFolderError, NotBegunError, StoreError
from harness.store.files import write_failed

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from harness.core.campaign import CampaignSpec


def subject(question: CampaignSpec) -> str:
    """What a run is about, in one word: its axis, or its matrix and the search in it."""
    return "-".join(filter(None, (question.matrix.name, question.search)))


def name_of(wall: str, about: str) -> str:
    """``20260102-030405-n_layers``: when a run was begun, in UTC, and what it is about."""
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
