"""The rules in order, and the verdict of the first that fires."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.competing import competing
from harness.classify.facts import ids_of
from harness.classify.signs import ended_by_exception, failed_before, memory_limit, replaced_worker, stopped_just_before
from harness.core.node import PIDS
from harness.core.verdict import Confidence, Kind
from harness.registry import Registry

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict

_AT = "harness.classify.rules."

_WHATEVER_ENDED_IT = {
    # Trials that say nothing about the program come first: nothing seen in them may be held against it.
    "interrupted": f"{_AT}infra:interrupted",
    "infra": f"{_AT}infra:infra",
    "xid": f"{_AT}infra:xid",
    # What ran must be what was asked before it can answer the question, also when it passed.
    "misconfigured": f"{_AT}infra:misconfigured",
    # A pass must also meet what the matrix asks of it.
    "nonfinite_loss": f"{_AT}below_target:nonfinite_loss",
    "below_target": f"{_AT}below_target:below_target",
    "gradients_wrong": f"{_AT}below_target:gradients_wrong",
}

_NOT_ENDED_BY_ITSELF = {
    # Now the trials that we ended, and jobs that we watch. A standstill is decisive whatever any limit says ...
    "stalled": f"{_AT}stalled:stalled",
    # ... what burns CPU only after all patience, and not while it gets on.
    "busy": f"{_AT}busy:busy",
    "slow_why": f"{_AT}slow_why:slow_why",
    "slow": f"{_AT}slow:slow",
    # Always fires.
    "unresolved": f"{_AT}unresolved:unresolved",
}

RULES = Registry(
    "rule",
    {
        **_WHATEVER_ENDED_IT,
        # Then what the process itself said and how it ended: facts, no inference.
        "passed": f"{_AT}passed:passed",
        "early_exit": f"{_AT}passed:early_exit",
        # The special exceptions before the general one.
        "nonfinite": f"{_AT}crashed:nonfinite",
        "foreign_device": f"{_AT}foreign_device:foreign_device",
        "memory_leak": f"{_AT}oom:memory_leak",
        "oom": f"{_AT}oom:oom",
        "exit_abort": f"{_AT}exit_abort:exit_abort",
        "own_limit": f"{_AT}own_limit:own_limit",
        "crashed": f"{_AT}crashed:crashed",
        **_NOT_ENDED_BY_ITSELF,
    },
)

RANK_RULES = Registry(
    "rule for several ranks",
    {
        **_WHATEVER_ENDED_IT,
        "ranks_passed": f"{_AT}passed:ranks_passed",
        # Who failed by itself, before who merely said that another one is gone.
        "rank_failed": f"{_AT}rank_failed:rank_failed",
        "collective_timeout": f"{_AT}collective_timeout:collective_timeout",
        "ranks_crashed": f"{_AT}crashed:ranks_crashed",
        **_NOT_ENDED_BY_ITSELF,
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
    fired: dict[str, Verdict] = {}
    for name in rules:
        verdict = rules.load(name)(case)
        if verdict is not None:
            fired[name] = verdict
    name, *later = fired
    first = fired[name]
    if case.evidence.ranks and name in WHOLE:
        first = replace(first, rank=None)
    also = tuple(other for other in later if other not in ALWAYS)
    because = f"{first.because}{_whereabouts(case, first.rank)}"
    cites = first.cites
    if first.kind in (Kind.HANG, Kind.UNRESOLVED):
        if died := ended_by_exception(case):
            because, cites = f"{because}; {died}", (*cites, *ids_of(case.evidence.logs))
        if replaced := replaced_worker(case):
            because = f"{because}; {replaced}"
    if first.kind is Kind.CRASH and (failed := failed_before(case)) and _is_news(failed, because):
        because, cites = f"{because}; {failed}", (*cites, *ids_of(case.evidence.logs))
    if first.kind in (Kind.HANG, Kind.UNRESOLVED, Kind.CRASH) and (hits := memory_limit(case)):
        because = f"{because}; {hits}"
    first = replace(first, rule=first.rule or name, because=because, cites=cites, also=also)
    return _doubted(case, replace(first, alternatives=competing(case, first)))


def _is_news(sentence: str, because: str) -> bool:
    """Whether the error that ``sentence`` ends with is another than the one that is told already."""
    message = sentence.rpartition(": ")[2]
    return message not in because


def _doubted(case: Case, verdict: Verdict) -> Verdict:
    """A crash that comes just after we had stopped a process of the trial may be our doing: no proof of a failure."""
    stopped, cites = stopped_just_before(case, verdict.rank) if verdict.kind is Kind.CRASH else ("", ())
    if not stopped:
        return verdict
    sure = Confidence.LOW if verdict.confidence is Confidence.LOW else Confidence.MEDIUM
    because, cites = f"{verdict.because}; {stopped}", (*verdict.cites, *cites)
    return replace(verdict, confidence=sure, because=because, cites=cites)


def _whereabouts(case: Case, rank: int | None) -> str:
    """Of a trial on several nodes, on which of them the rank that a verdict names ran, and its PID there."""
    nodes, pid = {node.number: node.host for node in case.evidence.nodes}, _pid_of(case, rank)
    if len(nodes) < 2 or pid is None or pid // PIDS not in nodes:
        return ""
    return f"; rank {rank} ran on {nodes[pid // PIDS]} (PID {pid % PIDS} there)"


def _pid_of(case: Case, rank: int | None) -> int | None:
    for facts in case.evidence.ranks:
        if facts.rank == rank:
            return facts.pid
    return None
