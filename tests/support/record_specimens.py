"""Recordings: the evidence of each specimen as test data, so that rules can be held against all of it at once.

nsa-harness selftest --keep seen
python tests/support/record_specimens.py seen tests/data/specimens
"""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.classify.engine import classify
from harness.settings import identities
from harness.specimens.catalog import SPECIMENS, score
from harness.store.cases import SUFFIX, read_cases, text_of, without_places

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.verdict import Case, Verdict
    from harness.store.cases import Judged

HERE = "recorded"
"""What stands for the machine and the code of a recording."""


def record(kept: Path, folder: Path) -> tuple[str, ...]:
    """Write what the self-test kept of each specimen to ``folder``; the names of those that were judged right.

    A specimen that was not judged as declared is left out, and what there was of it before is kept.
    """
    hidden = {str(kept.resolve()): "/runs", **dict.fromkeys(identities(), "host")}
    done: list[str] = []
    for found in read_cases(kept):
        name = found.name.rpartition("-")[0]
        if name in SPECIMENS.names() and name not in done and _right(name, found):
            trial = replace(found.case.trial, machine=HERE, code=HERE)
            case = replace(found.case, trial=trial)
            write_recording(folder, name, case, classify(case), hidden=hidden)
            done.append(name)
    return tuple(done)


def write_recording(folder: Path, name: str, case: Case, verdict: Verdict, *, hidden: Mapping[str, str]) -> Path:
    """Put ``<name>.json.gz`` into ``folder``, free of this machine's paths; keys of ``hidden`` become their values."""
    text = text_of(case, verdict)
    for word, plain in hidden.items():
        text = text.replace(json.dumps(word)[1:-1], plain)
    path = folder / f"{name}{SUFFIX}"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(without_places(text).encode(), mtime=0))
    return path


def _right(name: str, found: Judged) -> bool:
    specimen = SPECIMENS.load(name)
    verdict = classify(found.case)
    # A flaky one is worth recording when it struck.
    return score(specimen, verdict, found.case.outcome).right and verdict.kind is specimen.expect


if __name__ == "__main__":
    names = record(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.write(f"{len(names)} recorded: {', '.join(names)}\n")
