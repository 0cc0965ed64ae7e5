"""Controls: the failing value again with one thing changed, and what exactly was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.core.boundary import Finding
from harness.core.dotted import leaves
from harness.core.ports import Block
from harness.core.verdict import Kind
from harness.report.facts import controls, failing, value_of
from harness.report.text import code, md, table
from harness.report.words import of

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.record import Run
    from harness.core.trial import Trial


def section(run: Run, run_dir: Path) -> Block | None:
    """A row per control; that none was run is said where a control would have mattered."""
    found = controls(run)
    if not found:
        needed = run.boundary is not None and run.boundary.finding in (Finding.THRESHOLD, Finding.ALL_FAIL)
        text = "No control was run, so nothing here says which setting the failure depends on."
        return Block(title="Controls", markdown=text) if needed else None
    reference = failing(run)
    rows: list[tuple[object, ...]] = []
    for name, trials in found.items():
        passed = sum(t.verdict.kind is Kind.PASS for t in trials)
        verdicts = ", ".join(dict.fromkeys(md(t.verdict) for t in trials))
        changed = differences(reference.first.record.trial, trials[0].record.trial) if reference else []
        rows.append(
            (
                md(name),
                value_of(run, trials[0]),
                of(passed, len(trials)),
                verdicts,
                "; ".join(map(code, changed)) or "-",
            )
        )
    head = ("control", run.axis.name, "passed", "verdicts", "differs from the failing trial in")
    return Block(title="Controls", markdown=table(head, rows, right=(1,)))


def differences(failed: Trial, control: Trial) -> list[str]:
    """Every setting in which the control differs from the failing trial, wanted or not: ``name: before -> after``."""
    old, new = _settings(failed), _settings(control)
    return [
        f"{name}: {old.get(name)} -> {new.get(name)}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def _settings(trial: Trial) -> dict[str, Any]:
    return {
        **leaves(trial.config),
        **{f"env {name}": value for name, value in trial.env},
        "fault": str(trial.fault or "none"),
        "code": trial.code,
        "machine": trial.machine,
    }
