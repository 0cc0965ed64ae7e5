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

    from harness.core.evidence import ProcessState
    from harness.core.node import Node
    from harness.core.outcome import Outcome

CUT_S = 1.0
"""How long all nodes must have been looked at together: one undisturbed window."""

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
    evidences = [evidence for _, _, evidence in parts]
    first = evidences[0]
    if len(parts) == 1:
        return replace(first, nodes=(parts[0][0],))
    claimed = [facts for _, outcome, evidence in parts for facts in _ranks(outcome, evidence)]
    ranks = sorted(_own_numbers(claimed, _flat(evidence.processes for evidence in evidences)), key=attrgetter("rank"))
    marks = _flat(evidence.heartbeats for evidence in evidences)
    marks.sort(key=lambda mark: mark.t_s)
    until_s = max(outcome.duration_s for _, outcome, _ in parts)
    silence_s = min(until_s - outcome.duration_s + evidence.silence_s for _, outcome, evidence in parts)
    raised = [facts.result for facts in ranks if facts.result is not None and facts.result.status == "raised"]
    return Evidence(
        steps_wanted=first.steps_wanted,
        steps_done=min(facts.steps_done for facts in ranks) if ranks else first.steps_done,
        heartbeats=tuple(
            marks if len(marks) <= FIRST_MARKS + LAST_MARKS else marks[:FIRST_MARKS] + marks[-LAST_MARKS:]
        ),
        heartbeats_total=sum(evidence.heartbeats_total for evidence in evidences),
        silence_s=max(silence_s, 0.0),
        stacks=tuple(sorted(_flat(e.stacks for e in evidences), key=_time)),
        processes=tuple(sorted(_flat(e.processes for _, o, e in parts if not _ended_by_itself(o)), key=_time)),
        failures=tuple(_flat(e.failures for e in evidences)),
        logs=tuple(_flat(e.logs for e in evidences)),
        kernels=first.kernels,
        config_seen=any(evidence.config_seen for evidence in evidences),
        config_differences=tuple(dict.fromkeys(_flat(e.config_differences for e in evidences))),
        result=raised[0] if raised else next((facts.result for facts in ranks[:1]), first.result),
        memory_limit_hits=sum(evidence.memory_limit_hits for evidence in evidences),
        measurement=_measurement([evidence.measurement for evidence in evidences]),
        gpus=tuple(sorted(_flat(e.gpus for e in evidences), key=_time)),
        collectives=tuple(sorted(_flat(e.collectives for e in evidences), key=_time)),
        ras=tuple(_flat(e.ras for e in evidences)),
        ranks=tuple(ranks),
        gradients=next((e.gradients for e in evidences if e.gradients is not None), None),
        pace=_pace([evidence.pace for evidence in evidences]),
        world=max(evidence.world for evidence in evidences),
        main=first.main,
        nodes=tuple(node for node, _, _ in parts),
    )


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
    results = (facts.result for facts in ranks)
    return replace(
        evidence,
        **_marks_until(evidence, outcome, t_s=t_s),
        **{name: tuple(x for x in getattr(evidence, name) if x.t_s <= t_s) for name in _LOOKS},
        ranks=tuple(ranks),
        result=next((result for result in results if result is not None), None if before is None else before.result),
        logs=evidence.logs if before is None else before.logs,
    )


_LOOKS = ("stacks", "processes", "gpus", "collectives")


def _marks_until(whole: Evidence | RankFacts, outcome: Outcome, *, t_s: float) -> dict[str, Any]:
    """The marks by ``t_s`` of what the watch saw until ``outcome``'s end, and the silence since the last of them."""
    marks = tuple(mark for mark in whole.heartbeats if mark.t_s <= t_s)
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
    last_s = max((mark.t_s for _, evidence in rows for mark in evidence.heartbeats[-1:]), default=0.0)
    begins_s, errors = [last_s], [0.0]
    ends_s: list[float] = []
    for node, evidence in rows:
        times = [look.t_s for look in evidence.processes if look.t_s > last_s]
        if not times:
            return 0.0
        begins_s.append(min(times))
        ends_s.append(max(times))
        errors.append(node.error_s)
    several_clocks = len({node.clock for node, _ in rows}) > 1
    return min(ends_s) - max(begins_s) - (2 * max(errors) if several_clocks else 0.0)


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
    return [facts for facts in ranks if claims[facts.rank] == 1 or facts.pid not in launchers]


def _measurement(measurements: Sequence[Measurement]) -> Measurement:
    """Of steps and facts the first node's, which has rank 0; of times and sizes what holds for all."""
    startups_s = [m.startup_s for m in measurements if m.startup_s is not None]
    return Measurement(
        startup_s=max(startups_s, default=None),
        step_s=measurements[0].step_s,
        longest_silence_s=min(m.longest_silence_s for m in measurements),
        peak_rss_bytes=sum(m.peak_rss_bytes for m in measurements),
        facts=measurements[0].facts,
        memory=tuple(sorted(_flat(m.memory for m in measurements), key=_time)),
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


def _time(item: Any) -> float:
    return item.t_s
