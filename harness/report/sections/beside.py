"""Beside: where the evidence of a page lies that was passed on, and what of it does not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.report.text import code, count, listed
from harness.store import layout

if TYPE_CHECKING:
    from harness.core.record import TrialRecord
    from harness.report.findings import Findings


def section(findings: Findings) -> Block | None:
    """The archive, and the trials whose evidence it lacks; None for a report in its run's own folder."""
    run, run_dir = findings.run, findings.run_dir
    path = layout.bundle_manifest(run_dir)
    if not path.is_file():
        return None
    manifest = json.loads(path.read_text(encoding="utf-8"))
    trials = len(run.records)
    archive = layout.archive(run_dir).name
    holds = f"[{code(archive)}]({archive}) holds the journal and the evidence of"
    missing = [number for number, r in enumerate(run.records, start=1) if r.trial.key in set(manifest["left_out"])]
    if not manifest["left_out"]:
        text = f"{holds} all {count(trials, 'trial')}, without names and secrets."
    elif len(manifest["left_out"]) == trials:
        text = (
            f"[{code(archive)}]({archive}) holds the journal of {count(trials, 'trial')}, and the evidence of none. "
            f"**{manifest.get('why') or 'Their evidence is missing.'}** What this page says rests on the journal: "
            "verdicts, their reasons, durations and measurements as they were recorded. That the verdicts follow from "
            "what was seen cannot be checked again."
        )
    else:
        numbers = listed(missing, most=len(missing))
        text = f"{holds} {trials - len(missing)} of {count(trials, 'trial')}; that of {numbers} is missing."
    return Block(title="Evidence beside this page", markdown=text)


def folder_of(findings: Findings, record: TrialRecord) -> str:
    """``trials/<key>``, as a link to the archive that holds it where this report was passed on."""
    folder = code(f"trials/{record.trial.key}")
    is_linked = findings.is_passed_on and findings.has_evidence_of(record)
    return f"[{folder}]({layout.archive(findings.run_dir).name})" if is_linked else folder
