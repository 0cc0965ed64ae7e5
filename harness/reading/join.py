"""One case of what the agents of several nodes saw of their parts of a trial.

Each agent watches its own ranks with its own clock, PIDs and numbers. Before its evidence leaves the node its PIDs and
ids are made unlike those of all others (:func:`numbered`) and its times already count from the common beginning of the
trial, so joining is putting together and sorting.

When may the parts be judged together? Two nodes are looked at in moments of their own. That all of node 0 waited at
second 8 and all of node 1 at second 12 proves nothing: in between the one may have gone on and waited again. So a
standstill counts only where there is a *cut*: a span in which every node was being looked at, from a first undisturbed
look to a later one, after the last mark that anybody has made. Nobody moved in it, so nobody was on the way to anybody.
Clocks are compared with their error: a cut must be longer than what the clocks may be off.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from harness.core.evidence import FIRST_MARKS, LAST_MARKS, Evidence, Measurement, Pace, RankFacts
from harness.core.node import PIDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.evidence import GradientTruth, ProcessState, WorkerResult
    from harness.core.node import Node
    from harness.core.outcome import Outcome

CUT_S = 1.0
"""How long all nodes must have been looked at together: one undisturbed window."""

_time = attrgetter("t_s")

_PID_KEYS = frozenset({"pid", "tid", "parent", "main"})
_ID_KEYS = frozenset({"id", "undisturbed_since"})
_OWN_IDS = ("rank-", "result-")
"""Ids that hold a rank's number, and so are one trial's already."""
GPUS = 1000
"""What is added to the index of a GPU for each node before it."""


def numbered(name: str, value: Any, *, node: int) -> Any:
    """A field of evidence as JSON, with the PIDs, ids and GPUs of node ``node``; those of node 0 stay as they are."""
    if node == 0:
        return value
    if name in _PID_KEYS:
        return value + node * PIDS if value else value
    if name in _ID_KEYS:
        return f"{value}.n{node}" if value and not value.startswith(_OWN_IDS) else value
    if name == "holders":
        return [pid + node * PIDS for pid in value]
    if name == "index":
        return value + node * GPUS
    if name == "stream":
        return f"{value} of node {node}"
    if isinstance(value, list):
        return [numbered("", item, node=node) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: numbered(key, item, node=node) for key, item in cast("dict[str, Any]", value).items()}
    return value


def join(parts: Sequence[tuple[Node, Outcome, Evidence]]) -> Evidence:
    """What was seen of the whole trial; ``parts`` are numbered, in the order of their nodes, and share one time."""
    first_node, _, first = parts[0]
    if len(parts) == 1:
        return replace(first, nodes=(first_node,))
    until_s = max(outcome.duration_s for _, outcome, _ in parts)
    nodes: list[Node] = []
    evidences: list[Evidence] = []
    claimed: list[RankFacts] = []
    looks: list[ProcessState] = []
    silences_s: list[float] = []
    gradients: GradientTruth | None = None
    for node, outcome, evidence in parts:
        nodes.append(node)
        evidences.append(evidence)
        claimed += _ranks(outcome, evidence)
        silences_s.append(until_s - outcome.duration_s + evidence.silence_s)
        if not _ended_by_itself(outcome):
            looks += evidence.processes
        if gradients is None:
            gradients = evidence.gradients
    ranks = sorted(_own_numbers(claimed, _flat(evidence.processes for evidence in evidences)), key=attrgetter("rank"))
    marks = sorted(_flat(evidence.heartbeats for evidence in evidences), key=_time)
    return Evidence(
        steps_wanted=first.steps_wanted,
        steps_done=min(facts.steps_done for facts in ranks) if ranks else first.steps_done,
        heartbeats=tuple(
            marks if len(marks) <= FIRST_MARKS + LAST_MARKS else marks[:FIRST_MARKS] + marks[-LAST_MARKS:]
        ),
        heartbeats_total=sum(evidence.heartbeats_total for evidence in evidences),
        silence_s=max(min(silences_s), 0.0),
        stacks=tuple(sorted(_flat(evidence.stacks for evidence in evidences), key=_time)),
        processes=tuple(sorted(looks, key=_time)),
        failures=tuple(_flat(evidence.failures for evidence in evidences)),
        logs=tuple(_flat(evidence.logs for evidence in evidences)),
        kernels=first.kernels,
        config_seen=any(evidence.config_seen for evidence in evidences),
        config_differences=tuple(dict.fromkeys(_flat(evidence.config_differences for evidence in evidences))),
        result=_result_of(ranks, first.result),
        memory_limit_hits=sum(evidence.memory_limit_hits for evidence in evidences),
        measurement=_measurement([evidence.measurement for evidence in evidences]),
        gpus=tuple(sorted(_flat(evidence.gpus for evidence in evidences), key=_time)),
        collectives=tuple(sorted(_flat(evidence.collectives for evidence in evidences), key=_time)),
        ras=tuple(_flat(evidence.ras for evidence in evidences)),
        ranks=tuple(ranks),
        gradients=gradients,
        pace=_pace([evidence.pace for evidence in evidences]),
        world=max(evidence.world for evidence in evidences),
        main=first.main,
        nodes=tuple(nodes),
    )


def _result_of(ranks: Sequence[RankFacts], otherwise: WorkerResult | None) -> WorkerResult | None:
    """The result of the first rank that raised, else of the first of all; ``otherwise`` where there are no ranks."""
    for facts in ranks:
        if facts.result is not None and facts.result.status == "raised":
            return facts.result
    return ranks[0].result if ranks else otherwise


def until(outcome: Outcome, evidence: Evidence, *, t_s: float, before: Evidence | None) -> Evidence:
    """What was seen of a part by ``t_s``, when the trial was ended; ``before`` is what it had shown until a while ago.

    Parts do not end in one moment. What a rank does and says once another node's was ended is our doing: it makes no
    more marks, or others, and calls a connection lost. What has no time of its own (a result, what was printed) counts
    as far as it was there before.
    """
    earlier_results = {facts.rank: facts.result for facts in before.ranks} if before is not None else {}
    ranks: list[RankFacts] = []
    for facts in evidence.ranks:
        if facts.ended_s is not None and facts.ended_s <= t_s:
            ranks.append(facts)
            continue
        marks = _marks_until(facts, outcome, t_s=t_s)
        ranks.append(replace(facts, result=earlier_results.get(facts.rank), exit=None, ended_s=None, **marks))
    result = None if before is None else before.result
    for facts in reversed(ranks):
        if facts.result is not None:
            result = facts.result
    return replace(
        evidence,
        **_marks_until(evidence, outcome, t_s=t_s),
        stacks=_by(t_s, evidence.stacks),
        processes=_by(t_s, evidence.processes),
        gpus=_by(t_s, evidence.gpus),
        collectives=_by(t_s, evidence.collectives),
        ranks=tuple(ranks),
        result=result,
        logs=evidence.logs if before is None else before.logs,
    )


def _by(t_s: float, items: Iterable[Any]) -> tuple[Any, ...]:
    """Those that came by second ``t_s``."""
    return tuple(item for item in items if item.t_s <= t_s)


def _marks_until(whole: Evidence | RankFacts, outcome: Outcome, *, t_s: float) -> dict[str, Any]:
    """The marks by ``t_s`` of what the watch saw until ``outcome``'s end, and the silence since the last of them."""
    marks = _by(t_s, whole.heartbeats)
    later = len(whole.heartbeats) - len(marks)
    last_s = marks[-1].t_s if marks else 0.0
    silence_s = t_s - last_s if later else max(whole.silence_s + t_s - outcome.duration_s, 0.0)
    return {"heartbeats": marks, "heartbeats_total": whole.heartbeats_total - later, "silence_s": silence_s}


def cut_s(parts: Iterable[tuple[Node, Evidence]]) -> float:
    """How long all nodes with live processes were looked at together since the last mark, less what clocks may be off.

    0 or less where there was no such time.
    """
    rows = [(node, evidence) for node, evidence in parts if evidence.processes]
    if not rows:
        return 0.0
    last_s = max((evidence.last.t_s for _, evidence in rows if evidence.last is not None), default=0.0)
    begins_s, errors = [last_s], [0.0]
    ends_s: list[float] = []
    clocks: set[str] = set()
    for node, evidence in rows:
        times = [look.t_s for look in evidence.processes if look.t_s > last_s]
        if not times:
            return 0.0
        begins_s.append(min(times))
        ends_s.append(max(times))
        errors.append(node.error_s)
        clocks.add(node.clock)
    return min(ends_s) - max(begins_s) - (2 * max(errors) if len(clocks) > 1 else 0.0)


def _ended_by_itself(outcome: Outcome) -> bool:
    """Whether a part ended by itself: whoever was seen there is not there any more."""
    return outcome.exit is not None and outcome.stopped_by is None


def _ranks(outcome: Outcome, evidence: Evidence) -> Iterable[RankFacts]:
    """A node's ranks; where what was started is the rank itself, its exit is the rank's. Alike where all went well."""
    exit_ = outcome.exit if _ended_by_itself(outcome) else None
    alone = len(evidence.ranks) == 1 and evidence.ranks[0].pid == evidence.main
    for facts in evidence.ranks:
        is_its_exit = exit_ is not None and facts.exit is None and (alone or exit_.code == 0)
        yield replace(facts, exit=exit_, ended_s=outcome.duration_s) if is_its_exit else facts


def _own_numbers(ranks: Sequence[RankFacts], looks: Iterable[ProcessState]) -> list[RankFacts]:
    """Each rank once. Of two nodes that have one of a number, that which started other ranks is a launcher.

    What a launcher writes before there is any rank counts as rank 0's, on every node.
    """
    claims = Counter(facts.rank for facts in ranks)
    launchers = {look.parent for look in looks if look.rank >= 0}
    own: list[RankFacts] = []
    for facts in ranks:
        is_a_launcher = claims[facts.rank] > 1 and facts.pid in launchers
        if not is_a_launcher:
            own.append(facts)
    return own


def _measurement(measurements: Sequence[Measurement]) -> Measurement:
    """Of steps and facts the first node's, which has rank 0; of times and sizes what holds for all."""
    startups_s = [m.startup_s for m in measurements if m.startup_s is not None]
    return Measurement(
        startup_s=max(startups_s, default=None),
        step_s=measurements[0].step_s,
        longest_silence_s=min(m.longest_silence_s for m in measurements),
        peak_rss_bytes=sum(m.peak_rss_bytes for m in measurements),
        facts=measurements[0].facts,
        memory=tuple(sorted(_flat(measurement.memory for measurement in measurements), key=_time)),
    )


def _pace(paces: Sequence[Pace]) -> Pace:
    longest: dict[tuple[str, str], float] = {}
    for phase, edge, seconds in _flat(pace.gaps for pace in paces):
        longest[phase, edge] = max(longest.get((phase, edge), 0.0), seconds)
    return Pace(
        steps=min(pace.steps for pace in paces),
        longest_s=max(pace.longest_s for pace in paces),
        gaps=tuple((phase, edge, seconds) for (phase, edge), seconds in sorted(longest.items())),
    )


def _flat(rows: Iterable[Iterable[Any]]) -> list[Any]:
    return [item for row in rows for item in row]
