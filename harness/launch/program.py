"""Program: why a name cannot be started here, in the words of somebody who typed it. Starts nothing."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path

LAUNCHERS = ("python", "python3", "torchrun", "accelerate", "deepspeed", "mpirun", "srun", "uv", "bash", "sh", "env")
"""What begins the command line of a training; the nearest of them that is there is suggested."""

STARTERS = {".py": "python", ".sh": "bash"}


def why_not_startable(name: str, *, path: str | None, directory: str) -> str:
    """Why ``name`` cannot be started in ``directory`` with ``path`` as its PATH; empty where nothing is in the way.

    Of a script the interpreter that its first line names is looked at. What only that one knows, such as the program
    behind ``#!/usr/bin/env``, is not.
    """
    if "/" in name:
        return _why_not(Path(directory, name), name, directory)
    folders = [Path(directory, folder) for folder in (os.defpath if path is None else path).split(os.pathsep)]
    there = [folder / name for folder in folders if (folder / name).is_file()]
    if there:  # the system goes on to the next of them as well
        reasons = [_why_not(place, name, directory) for place in there]
        return "" if "" in reasons else reasons[0]
    if Path(directory, name).is_file():
        starter = STARTERS.get(Path(name).suffix)
        how = f"{starter} {name}" if starter else f"./{name}"
        return f"{name} is not on PATH, but in this folder: start it with {how}"
    launchers = [one for one in LAUNCHERS if any(_is_program(folder / one) for folder in folders)]
    near = get_close_matches(name, launchers, n=1)
    return f"{name or repr(name)} is not on PATH{f'; {near[0]} is' if near else ''}"


def _why_not(place: Path, name: str, directory: str) -> str:
    if _is_program(place):
        return _why_no_interpreter(place, name, directory)
    if place.is_dir():
        return f"{name} is a folder, no program"
    if not place.exists():
        return f"{name} is not there"
    return f"{name.removeprefix('./')} is not executable: chmod +x it{_or_with_starter(place)}"


def _why_no_interpreter(place: Path, name: str, directory: str) -> str:
    """Why the interpreter in the first line of a script cannot be started; empty of a program that has none there."""
    interpreter = _interpreter(place)
    if not interpreter or _is_program(Path(directory, interpreter)):
        return ""
    short = name.removeprefix("./")
    if interpreter.endswith("\r"):
        return (
            f"the first line of {short} ends with a carriage return, as on Windows, so that its interpreter "
            f"{interpreter!r} does not exist: sed -i 's/\\r$//' {name}"
        )
    what = "is not executable" if Path(directory, interpreter).exists() else "does not exist"
    return f"the interpreter of {short} {what}: {interpreter}, in its first line. Name another{_or_with_starter(place)}"


def _interpreter(place: Path) -> str:
    """What a script names behind ``#!``, as the system reads it; empty where nothing stands there, or none may look."""
    try:
        with place.open("rb") as file:
            first, _, _ = file.read(256).partition(b"\n")
    except OSError:
        return ""
    words = re.split(rb"[ \t]+", first.removeprefix(b"#!").strip(b" \t")) if first.startswith(b"#!") else [b""]
    return os.fsdecode(words[0])


def _is_program(place: Path) -> bool:
    return place.is_file() and os.access(place, os.X_OK)


def _or_with_starter(place: Path) -> str:
    return f", or start it with {STARTERS[place.suffix]}" if place.suffix in STARTERS else ""
