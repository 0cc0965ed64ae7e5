"""The rules in order, and the verdict of the first that fires."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.competing import competing
from harness.classify.facts import silence_began_s
from harness.core.services import with_services
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
        # Jobs that somebody else started and that still run: what is certain is for the rules below.
        "running": "harness.classify.rules.running:running",
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
        # Only now the trials that we ended. A standstill is decisive whatever any limit or prediction says ...
        "stopped": "harness.classify.rules.stopped:stopped",
        "hung_waiting": "harness.classify.rules.hung_waiting:hung_waiting",
        "starved": "harness.classify.rules.starved:starved",
        # ... but a silence that a healthy trial may have is not, so this comes before any hang that burns CPU.
        "limit_too_short": "harness.classify.rules.limit_too_short:limit_too_short",
        "gpu_spin": "harness.classify.rules.gpu_spin:gpu_spin",
        "hung_busy": "harness.classify.rules.hung_busy:hung_busy",
        # Progress excludes every hang (silence within its limit), so SLOW cannot hide one.
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
        # Jobs that somebody else started and that still run: what is certain is for the rules below.
        "running": "harness.classify.rules.running:running",
        "misconfigured": "harness.classify.rules.misconfigured:misconfigured",
        "nonfinite_loss": "harness.classify.rules.below_target:nonfinite_loss",
        "below_target": "harness.classify.rules.below_target:below_target",
        "gradients_wrong": "harness.classify.rules.gradients_wrong:gradients_wrong",
        "ranks_passed": "harness.classify.rules.ranks_passed:ranks_passed",
        # Who failed by itself, before who merely said that another one is gone.
        "rank_failed": "harness.classify.rules.rank_failed:rank_failed",
        "collective_timeout": "harness.classify.rules.collective_timeout:collective_timeout",
        "ranks_crashed": "harness.classify.rules.ranks_crashed:ranks_crashed",
        # Then the trials that we ended: who is not where the others are.
        # What the flight recorders say is a fact; where stacks wait comes after it.
        "collective_parted": "harness.classify.rules.collective_parted:collective_parted",
        "rank_missing": "harness.classify.rules.rank_missing:rank_missing",
        "collective_mismatch": "harness.classify.rules.collective_mismatch:collective_mismatch",
        "collective_stuck": "harness.classify.rules.collective_stuck:collective_stuck",
        "rank_slow": "harness.classify.rules.rank_slow:rank_slow",
        "parted_once": "harness.classify.rules.parted_once:parted_once",
        # Always fires.
        "ranks_unresolved": "harness.classify.rules.ranks_unresolved:ranks_unresolved",
    },
)
"""The rules for trials of several ranks; most ask the rules above about one rank, as if it were the whole trial."""

WHOLE = frozenset({"interrupted", "infra", "misconfigured", "nonfinite_loss", "below_target", "gradients_wrong"})
"""Rules whose verdicts are about a trial as a whole: of several ranks, none is named."""

ALWAYS = frozenset({"unresolved", "ranks_unresolved"})


def classify(case: Case) -> Verdict:
    """What we conclude about one trial. Pure: the same case gives the same verdict, on any machine, at any time.

    ``also`` of the verdict names the later rules that would have fired too (those aside that always do).
    """
    if case.evidence.ranks:
        looks = with_services(case.evidence.processes, case.evidence.stacks, since_s=silence_began_s(case))
        case = replace(case, evidence=replace(case.evidence, processes=looks))
    rules = RANK_RULES if case.evidence.ranks else RULES
    fired = [(name, verdict) for name in rules if (verdict := rules.load(name)(case)) is not None]
    (name, first), *rest = fired
    if case.evidence.ranks and name in WHOLE:
        first = replace(first, rank=None)
    also = tuple(name for name, _ in rest if name not in ALWAYS)
    return replace(first, also=also, alternatives=competing(case, first))
