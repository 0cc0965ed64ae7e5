"""Program: why a name cannot be started here, in the words of somebody who typed it. Starts nothing."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

LAUNCHERS = ("python", "python3", "torchrun", "accelerate", "deepspeed", "mpirun", "srun", "uv", "bash", "sh", "env")
"""What begins the command line of a training; the nearest of them that is there is suggested."""

STARTERS = {".py": "python", ".sh": "bash"}


def why_not_startable(name: str, *, path: str | None, directory: str) -> str:
    """Why ``name`` cannot be started in ``directory`` with ``path`` as its PATH; empty where nothing is in the way.

    What only shows when it is executed, such as an interpreter in its first line that is not there, is not looked at.
    """
    if "/" in name:
        return _why_not(Path(directory, name), name)
    folders = [Path(directory, folder) for folder in (os.defpath if path is None else path).split(os.pathsep)]
    if any(_is_program(folder / name) for folder in folders):
        return ""
    for folder in folders:
        if (folder / name).is_file():
            return _why_not(folder / name, name)
    if Path(directory, name).is_file():
        return f"{name} is not on PATH, but in this folder: start it with {_starter(name)}"
    there = [one for one in LAUNCHERS if any(_is_program(folder / one) for folder in folders)]
    near = get_close_matches(name, there, n=1)
    return f"{name or repr(name)} is not on PATH{f'; {near[0]} is' if near else ''}"


def _why_not(place: Path, name: str) -> str:
    if _is_program(place):
        return ""
    if place.is_dir():
        return f"{name} is a folder, no program"
    if not place.exists():
        return f"{name} is not there"
    with_starter = f", or start it with {STARTERS[place.suffix]}" if place.suffix in STARTERS else ""
    return f"{name.removeprefix('./')} is not executable: chmod +x it{with_starter}"


def _is_program(place: Path) -> bool:
    return place.is_file() and os.access(place, os.X_OK)


def _starter(name: str) -> str:
    starter = STARTERS.get(Path(name).suffix)
    return f"{starter} {name}" if starter else f"./{name}"
