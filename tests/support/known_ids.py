"""What a verdict may cite."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.core.evidence import EvidenceId
    from harness.core.verdict import Case


def known_ids(case: Case) -> frozenset[EvidenceId]:
    """Every id that a verdict on ``case`` may cite."""
    evidence = case.evidence
    ids = {"progress", "exit", "cleanup"}
    ids.update(item.id for item in (*evidence.stacks, *evidence.processes, *evidence.failures, *evidence.logs))
    ids.update(item.id for item in (*evidence.gpus, *evidence.collectives, *evidence.ras))
    results = (evidence.result, *(rank.result for rank in evidence.ranks))
    ids.update(result.id for result in results if result is not None)
    ids.update(rank.id for rank in evidence.ranks)
    if evidence.gradients is not None:
        ids.add(evidence.gradients.id)
    if evidence.config_seen:
        ids.add("config")
    if case.trial.prediction is not None:
        ids.add("prediction")
    return frozenset(ids)
