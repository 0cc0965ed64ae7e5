"""Controls: the first failing value again with one thing changed; the claim grows only if that passes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.boundary import Claim, Finding
from harness.core.point import assignment
from harness.core.ports import CellRequest
from harness.core.trial import CONTROL
from harness.core.verdict import Kind
from harness.search.tables import of_cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.boundary import Boundary
    from harness.core.campaign import CampaignSpec
    from harness.core.record import TrialRecord

PASSES = 3
"""Passes asked of a control when the failure showed in every trial at its value."""


def next_control(spec: CampaignSpec, boundary: Boundary, records: Sequence[TrialRecord]) -> CellRequest | None:
    """The trial of a control that would still tell something; None once each has passed often enough, or has failed."""
    if not _has_failing_value(boundary):
        return None
    for name in spec.controls:
        kinds = _kinds(name, spec, boundary, records)
        if not _failed(kinds, spec) and kinds.count(Kind.PASS) < _passes_required(boundary):
            cell = spec.at(boundary.first_bad)
            return CellRequest(cell=cell, role=f"{CONTROL} {name}", reason=f"control: {name}")
    return None


def with_controls(boundary: Boundary, spec: CampaignSpec, records: Sequence[TrialRecord]) -> Boundary:
    """``boundary`` with what its controls showed; isolated if all of them passed where a failure was reproduced."""
    if not _has_failing_value(boundary) or not spec.controls:
        return boundary
    at = assignment(boundary.axis, boundary.first_bad)
    passed: list[str] = []
    failed: list[str] = []
    incomplete: list[str] = []
    for name in spec.controls:
        kinds = _kinds(name, spec, boundary, records)
        if _failed(kinds, spec):
            failed.append(f"control {name} does not pass at {at}")
        elif kinds.count(Kind.PASS) >= _passes_required(boundary):
            passed.append(f"control {name} passes at {at}")
        else:
            incomplete.append(f"control {name} was not run to its end at {at}")
    notes = (*boundary.notes, *passed, *failed, *incomplete)
    isolated = bool(passed) and not failed and not incomplete and boundary.claim is Claim.REPRODUCED
    return replace(boundary, notes=notes, claim=Claim.ISOLATED if isolated else boundary.claim)


def _has_failing_value(boundary: Boundary) -> bool:
    return boundary.finding in (Finding.THRESHOLD, Finding.ALL_FAIL)


def _passes_required(boundary: Boundary) -> int:
    """As many passes as make a rare failure of the control unlikely."""
    for count in boundary.counts:
        if count.good and count.bad:
            return boundary.certificate_passes
    return PASSES


def _kinds(name: str, spec: CampaignSpec, boundary: Boundary, records: Sequence[TrialRecord]) -> list[Kind]:
    here = of_cell(spec.at(boundary.first_bad), records)
    return [record.verdict.kind for record in here if record.trial.control == name]


def _failed(kinds: Sequence[Kind], spec: CampaignSpec) -> bool:
    """Whether a control has failed once, or was spoiled by the machine too often to be told."""
    return bool(set(kinds) - {Kind.PASS, Kind.INFRA}) or kinds.count(Kind.INFRA) > spec.matrix.infra_retries
