"""Cases in files of their own: all that a verdict was reached from, to be judged again by later rules.

``case.json`` in a trial's folder (the self-test keeps them), or ``<name>.json.gz`` (recordings). Recordings are made
free of this machine's paths and names.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.core.codec import from_json, to_json
from harness.core.errors import JournalError
from harness.core.verdict import Case, Verdict
from harness.store.files import write_atomic
from harness.store.redact import redact, secrets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = "case.json"
SUFFIX = ".json.gz"

_PLACES = (
    (re.compile(r"[^\s\"'(]*/(lib/python3\.\d+/site-packages/)"), r"/venv/\1"),
    (re.compile(r"[^\s\"'(]*/(lib/(?:lib)?python3\.\d+[^\s\"']*)"), r"/python/\1"),
    (re.compile(r"[^\s\"'(]*/(Python-3[\d.]+/)"), r"/python/\1"),
    (re.compile(r"[^\s\"'(]*/(bin/python[\d.]*)"), r"/python/\1"),
    (re.compile(r"[^\s\"'(]*/((?:harness|nsa)/[\w/]+\.py)"), r"/src/\1"),
    (re.compile(r"(?<!\w)/(?:tmp|var/tmp)/"), "/scratch/"),
)
"""Where packages, the interpreter and our own sources were, and what is written instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A case and the verdict that it got; ``name`` says which it is."""

    name: str
    case: Case
    verdict: Verdict


def write_case(folder: Path, case: Case, verdict: Verdict) -> None:
    """Put ``case.json`` into ``folder``.

    Raises:
        StoreError: it cannot be written.
    """
    write_atomic(folder / FILE, text_of(case, verdict) + "\n")


def without_places(text: str) -> str:
    """``text`` with plain words for where packages, the interpreter, our sources and scratch files were."""
    for pattern, plain in _PLACES:
        text = pattern.sub(plain, text)
    return text


def read_cases(directory: Path) -> Iterator[Judged]:
    """Every case below ``directory``, by name.

    Raises:
        JournalError: a file does not hold what this version understands.
    """
    for path in sorted((*directory.rglob(FILE), *directory.rglob(f"*{SUFFIX}"))):
        name = path.parent.name if path.name == FILE else path.name.removesuffix(SUFFIX)
        try:
            text = path.read_bytes() if path.name == FILE else gzip.decompress(path.read_bytes())
            data = json.loads(text)
            yield Judged(name=name, case=from_json(Case, data["case"]), verdict=from_json(Verdict, data["verdict"]))
        except (ValueError, KeyError, TypeError, EOFError, gzip.BadGzipFile, JournalError) as error:
            raise JournalError(f"{path}: {error}") from error


def text_of(case: Case, verdict: Verdict) -> str:
    """Both as JSON without secrets."""
    data: dict[str, Any] = {"case": to_json(case), "verdict": to_json(verdict)}
    return json.dumps(redact(data, values=secrets(case.trial.env)))
