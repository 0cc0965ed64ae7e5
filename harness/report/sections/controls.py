"""Controls: the failing value again with one thing changed, and what exactly was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.core.boundary import Finding
from harness.core.dotted import leaves
from harness.core.ports import Block
from harness.report.text import code, md, table
from harness.report.words import of

if TYPE_CHECKING:
    from harness.core.trial import Trial
    from harness.report.findings import Findings


def section(findings: Findings) -> Block | None:
    """A row per control; that none was run is said where a control would have mattered."""
    controls, boundary = findings.controls, findings.run.boundary
    if not controls:
        is_needed = boundary is not None and boundary.finding in (Finding.THRESHOLD, Finding.ALL_FAIL)
        text = "No control was run, so nothing here says which setting the failure depends on."
        return Block(title="Controls", markdown=text) if is_needed else None
    failing = findings.failing
    rows: list[tuple[object, ...]] = []
    for name, trials in controls.items():
        verdicts = ", ".join(dict.fromkeys(md(trial.verdict) for trial in trials))
        changed = differences(failing.first.record.trial, trials.first.record.trial) if failing else []
        passes, settings = of(trials.passed, len(trials)), "; ".join(map(code, changed)) or "-"
        rows.append((md(name), findings.value_of(trials.first), passes, verdicts, settings))
    head = ("control", findings.run.axis.name, "passed", "verdicts", "differs from the failing trial in")
    return Block(title="Controls", markdown=table(head, rows, right=(1,)))


def differences(failed: Trial, control: Trial) -> list[str]:
    """Every setting in which the control differs from the failing trial, wanted or not: ``name: before -> after``."""
    old, new = _settings(failed), _settings(control)
    changed: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before != after:
            changed.append(f"{name}: {before} -> {after}")
    return changed


def _settings(trial: Trial) -> dict[str, Any]:
    settings = leaves(trial.config)
    for name, value in trial.env:
        settings[f"env {name}"] = value
    return settings | {"fault": str(trial.fault or "none"), "code": trial.code, "machine": trial.machine}
