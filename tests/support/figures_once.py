"""Each figure drawn once for all tests that make the same canned run: two thirds of a bundle's time are drawing."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from typing import Any

from harness.report.apart import figures_of
from harness.report.figures.draw import Figure
from harness.report.findings import Findings

_figures: dict[object, tuple[Figure, ...]] = {}


def figures_once(findings: Findings, hide: Callable[[str], str]) -> tuple[Figure, ...]:
    """As ``figures_of``: what was drawn of a run of the same content before, where the same is hidden in it."""
    key = (_content(findings), _hidden(hide))
    if key not in _figures:
        _figures[key] = figures_of(findings, hide)
    return _figures[key]


def _content(findings: Findings) -> str:
    digest = hashlib.sha256(pickle.dumps(findings.run))
    for path in sorted(findings.run_dir.glob("trials/**/*")):
        if path.is_file():
            digest.update(str(path.relative_to(findings.run_dir)).encode() + path.read_bytes())
    return digest.hexdigest()


def _hidden(hide: Callable[[str], str]) -> Any:
    hider = getattr(hide, "__self__", None)
    return (hider._secrets, *hider._paths, *hider._words) if hider is not None else hide
