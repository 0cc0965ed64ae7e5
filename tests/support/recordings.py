"""The recorded cases of a folder: their names without reading them, and each of them read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from harness.core.verdict import Case
from harness.store.cases import SUFFIX, Judged, read_cases
from raw_recordings import load_recording

DATA = Path(__file__).parents[1] / "data"
SPECIMENS = DATA / "specimens"
H200 = DATA / "evidence" / "h200"


def names(folder: Path) -> list[str]:
    """What is recorded there; to read it takes a second, which every process that collects tests would take."""
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))


@cache
def recorded(folder: Path) -> dict[str, Judged]:
    """All that is recorded there, by name."""
    return {judged.name: judged for judged in read_cases(folder)}


def raw_names() -> list[str]:
    """The recordings that are the raw output of tools."""
    return sorted(folder.name for folder in H200.iterdir() if folder.is_dir())


@cache
def raw(name: str) -> Case:
    """One of them."""
    return load_recording(H200 / name)[0]


def specimen(name: str) -> Case:
    """What was seen of a specimen."""
    return recorded(SPECIMENS)[name].case
