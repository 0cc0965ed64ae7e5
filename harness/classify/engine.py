"""The rules in order, and the verdict of the first that fires."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.competing import competing
from harness.core.node import PIDS
from harness.registry import Registry

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict

RULES = Registry(
    "rule",
    {
        # Trials that say nothing about the program come first: nothing seen in them may be held against it.
        "interrupted": "harness.classify.rules.infra:interrupted",
        "infra": "harness.classify.rules.infra:infra",
        "xid": "harness.classify.rules.xid:xid",
        # What ran must be what was asked before it can answer the question, also when it passed.
        "misconfigured": "harness.classify.rules.misconfigured:misconfigured",
        # A pass must also meet what the matrix asks of it.
        "nonfinite_loss": "harness.classify.rules.below_target:nonfinite_loss",
        "below_target": "harness.classify.rules.below_target:below_target",
        "gradients_wrong": "harness.classify.rules.gradients_wrong:gradients_wrong",
        # Then what the process itself said and how it ended: facts, no inference.
        "passed": "harness.classify.rules.passed:passed",
        "early_exit": "harness.classify.rules.early_exit:early_exit",
        # The special exceptions before the general one.
        "nonfinite": "harness.classify.rules.nonfinite:nonfinite",
        "foreign_device": "harness.classify.rules.foreign_device:foreign_device",
        "memory_leak": "harness.classify.rules.memory_leak:memory_leak",
        "oom": "harness.classify.rules.oom:oom",
        "exit_abort": "harness.classify.rules.exit_abort:exit_abort",
        "crashed": "harness.classify.rules.crashed:crashed",
        # Now the trials that we ended, and jobs that we watch. A standstill is decisive whatever any limit says ...
        "stalled": "harness.classify.rules.stalled:stalled",
        # ... what burns CPU only after all patience, and not while it gets on.
        "busy": "harness.classify.rules.busy:busy",
        "slow_why": "harness.classify.rules.slow_why:slow_why",
        "slow": "harness.classify.rules.slow:slow",
        # Always fires.
        "unresolved": "harness.classify.rules.unresolved:unresolved",
    },
)

RANK_RULES = Registry(
    "rule for several ranks",
    {
        "interrupted": "harness.classify.rules.infra:interrupted",
        "infra": "harness.classify.rules.infra:infra",
        "xid": "harness.classify.rules.xid:xid",
        "misconfigured": "harness.classify.rules.misconfigured:misconfigured",
        "nonfinite_loss": "harness.classify.rules.below_target:nonfinite_loss",
        "below_target": "harness.classify.rules.below_target:below_target",
        "gradients_wrong": "harness.classify.rules.gradients_wrong:gradients_wrong",
        "ranks_passed": "harness.classify.rules.ranks_passed:ranks_passed",
        # Who failed by itself, before who merely said that another one is gone.
        "rank_failed": "harness.classify.rules.rank_failed:rank_failed",
        "collective_timeout": "harness.classify.rules.collective_timeout:collective_timeout",
        "ranks_crashed": "harness.classify.rules.ranks_crashed:ranks_crashed",
        # Now the trials that we ended, and jobs that we watch. A standstill is decisive whatever any limit says ...
        "stalled": "harness.classify.rules.stalled:stalled",
        # ... what burns CPU only after all patience, and not while it gets on.
        "busy": "harness.classify.rules.busy:busy",
        "slow_why": "harness.classify.rules.slow_why:slow_why",
        "slow": "harness.classify.rules.slow:slow",
        # Always fires.
        "unresolved": "harness.classify.rules.unresolved:unresolved",
    },
)
"""The rules for trials of several ranks: how they ended is asked rank by rank, a standstill of the whole job."""

WHOLE = frozenset({"interrupted", "infra", "misconfigured", "nonfinite_loss", "below_target", "gradients_wrong"})
"""Rules whose verdicts are about a trial as a whole: of several ranks, none is named."""

ALWAYS = frozenset({"unresolved"})


def classify(case: Case) -> Verdict:
    """What we conclude about one trial. Pure: the same case gives the same verdict, on any machine, at any time.

    ``also`` of the verdict names the later rules that would have fired too (those aside that always do).
    """
    rules = RANK_RULES if case.evidence.ranks else RULES
    fired = [(name, verdict) for name in rules if (verdict := rules.load(name)(case)) is not None]
    (name, first), *rest = fired
    if case.evidence.ranks and name in WHOLE:
        first = replace(first, rank=None)
    also = tuple(name for name, _ in rest if name not in ALWAYS)
    because = f"{first.because}{_whereabouts(case, first.rank)}"
    return replace(first, because=because, also=also, alternatives=competing(case, first))


def _whereabouts(case: Case, rank: int | None) -> str:
    """Of a trial on several nodes, on which of them the rank that a verdict names ran, and its PID there."""
    nodes = {node.number: node.host for node in case.evidence.nodes}
    pid = next((facts.pid for facts in case.evidence.ranks if facts.rank == rank), None)
    if len(nodes) < 2 or pid is None or pid // PIDS not in nodes:
        return ""
    return f"; rank {rank} ran on {nodes[pid // PIDS]} (PID {pid % PIDS} there)"
