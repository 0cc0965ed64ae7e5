"""The worker's own files: the configuration it ran with, the kernels it chose, what it said last."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.core.codec import from_json
from harness.core.dotted import leaves
from harness.core.errors import JournalError
from harness.core.evidence import GradientTruth, KernelResolution, SourceFailure, WorkerResult
from harness.observe.asked import how_asked
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from harness.core.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the worker wrote about itself; ``results`` are those of several ranks, one each that left one.

    ``failures`` names files that are there but make no sense.
    """

    config_seen: bool
    config_differences: tuple[str, ...]
    kernels: tuple[KernelResolution, ...]
    result: WorkerResult | None
    results: dict[int, WorkerResult]
    gradients: GradientTruth | None
    failures: tuple[SourceFailure, ...]


def read_answers(trial_dir: Path, *, requested: Mapping[str, object], ranks: Iterable[int] = ()) -> Answers:
    """All of the worker's files, each of which may be missing."""
    failures: list[SourceFailure] = []

    def read(path: Path) -> Any:
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            failures.append(_unreadable(path, error))
            return None

    effective: dict[str, Any] | None = read(layout.effective(trial_dir))
    ran: dict[str, Any] | None = effective.get("config") if isinstance(effective, dict) else None
    table, kernels = read(layout.kernels(trial_dir)), ()

    def word(path: Path, id: str) -> WorkerResult | None:
        record = read(path)
        try:
            return None if record is None else _result({**record, "id": id})
        except (JournalError, TypeError, AttributeError) as error:
            failures.append(_unreadable(path, error))
            return None

    try:
        kernels = tuple(from_json(KernelResolution, row) for row in table or ())
    except JournalError as error:
        failures.append(_unreadable(layout.kernels(trial_dir), error))
    compared = read(layout.gradients(trial_dir))
    words: dict[int, WorkerResult] = {}
    for rank in sorted({0, *ranks}):
        result = word(layout.result(trial_dir, rank), f"result-{rank}")
        if result is not None:
            words[rank] = result
    alone = words.get(0)
    return Answers(
        config_seen=isinstance(ran, dict),
        config_differences=differences(requested, ran) if isinstance(ran, dict) else (),
        kernels=kernels,
        result=None if alone is None else replace(alone, id="result"),
        gradients=None if compared is None else from_json(GradientTruth, compared),
        results={rank: words[rank] for rank in ranks if rank in words},
        failures=tuple(failures),
    )


def _result(record: dict[str, Any]) -> WorkerResult:
    """What a process said last; of how it was begun, what shows that its failure was asked for."""
    begun = record.pop("begun", {})
    return from_json(WorkerResult, {"followed": bool(begun.get("followed")), "asked": how_asked(begun), **record})


def differences(requested: Mapping[str, object], ran: Mapping[str, object]) -> tuple[str, ...]:
    """Each requested setting that the echo contradicts: ``"train.steps: requested 5, ran 3"``.

    Settings that were not requested are the target's own business and are not compared.
    """
    echo = _plain(ran)
    sentences: list[str] = []
    for path, value in _plain(requested).items():
        if path not in echo:
            sentences.append(f"{path}: requested {value!r}, not run")
        elif echo[path] != value:
            sentences.append(f"{path}: requested {value!r}, ran {echo[path]!r}")
    return tuple(sentences)


def steps_wanted(trial: Trial) -> int:
    """How many steps the trial was asked for: ``train.steps`` or ``steps``; 0 for a target that counts none."""
    settings = leaves(trial.config)
    steps = settings.get("train.steps", settings.get("steps", 0))
    return steps if isinstance(steps, int) else 0


def _plain(tree: Mapping[str, object]) -> dict[str, object]:
    """Dotted paths, with tuples as JSON has them."""
    plain = leaves(tree)
    for path, value in plain.items():
        if isinstance(value, tuple):
            plain[path] = [*value]
    return plain


def _unreadable(path: Path, error: Exception) -> SourceFailure:
    return SourceFailure(id=f"failure-{path.stem}", source=path.name, reason=f"it cannot be read: {error}")
