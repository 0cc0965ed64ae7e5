"""What was seen of every rank and every GPU, as Markdown: who is where, who fell silent first, who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.one import ranks_of, sentences_of
from harness.report.text import bullets, code, count, details, fence, listed, md, seconds, size, table
from harness.report.tried import latest_of_each

if TYPE_CHECKING:
    from harness.core.devices import GpuSample
    from harness.core.evidence import CollectiveState, Evidence, RankFacts

PENDING = 6


def ranks(evidence: Evidence) -> str:
    """The ranks by place, the odd one out first, then each rank's last sign; empty for a single process."""
    if len(evidence.ranks) < 2:
        return ""
    places = sentences_of(ranks_of(evidence))
    head = ("rank", "steps done", "last mark", "silent for", "ended by itself")
    by_silence = sorted(evidence.ranks, key=lambda facts: (-facts.silence_s, facts.rank))
    body = table(head, map(_row, by_silence), right=(0, 1, 3))
    if not places:  # of a rank that moved on, its stacks say where it was, not where it is
        return f"**Ranks,** the longest silence first:\n\n{body}"
    where = bullets(f"{md(sentence)}." for sentence in places)
    return f"**Ranks,** the odd one out first:\n\n{where}\n\n{body}"


def _row(facts: RankFacts) -> tuple[object, ...]:
    silent = seconds(facts.silence_s) if facts.ended_s is None else "-"
    return (facts.rank, facts.steps_done, _last(facts), silent, _ended(facts))


def _last(facts: RankFacts) -> str:
    mark = facts.last
    if mark is None:
        return "none"
    step = f", step {mark.step}" if mark.step is not None else ""
    return md(f"{mark.phase} {mark.edge}{step} at {seconds(mark.t_s)}")


def _ended(facts: RankFacts) -> str:
    if facts.ended_s is None:
        return "no"
    how = facts.exit.words if facts.exit else ""
    return f"at {seconds(facts.ended_s)}{', ' if how else ''}{how}"


def devices(evidence: Evidence) -> str:
    """The GPUs at the last look, and the collectives that ranks had begun and not finished; empty without either."""
    return "\n\n".join(filter(None, (_gpus(evidence), _collectives(evidence), _ras(evidence))))


def _gpus(evidence: Evidence) -> str:
    last = latest_of_each(evidence.gpus, lambda sample: sample.index, by=lambda sample: sample.t_s)
    if not last:
        return ""
    head = ("GPU", "", "kernel resident", "memory busy", "memory used, all processes", "power", "processes", "Xid")
    body = table(head, map(_gpu, last), right=(0, 2, 3, 4, 5))
    return f"**GPUs** at the last look. A rank that waits inside NCCL reads 100 % as well; power tells.\n\n{body}"


def _gpu(sample: GpuSample) -> tuple[object, ...]:
    whose = {True: "", False: " (not ours)", None: " (?)"}
    return (
        sample.index,
        md(sample.name),
        _with_unit(sample.utilisation, " %"),
        _with_unit(sample.memory_utilisation, " %"),
        f"{size(sample.memory_used_bytes)}" if sample.memory_used_bytes is not None else "-",
        f"{sample.power_w:.0f} W" if sample.power_w is not None else "-",
        listed(f"{process.pid}{whose[process.ours]}" for process in sample.processes) or "-",
        listed(sample.xids) or "none",
    )


def _with_unit(value: int | None, unit: str) -> str:
    return "-" if value is None else f"{value}{unit}"


def _collectives(evidence: Evidence) -> str:
    latest = latest_of_each(evidence.collectives, lambda state: state.rank, by=lambda state: state.t_s)
    if not latest:
        return ""
    head = ("rank", "backend", "last done", "begun and not done", "called at")
    body = table(head, map(_calls, latest), right=(0,))
    return f"**Collectives,** by each rank's flight recorder:\n\n{body}"


def _calls(state: CollectiveState) -> tuple[object, ...]:
    """A rank, the last call that it has done, and the calls that it waits in."""
    done = called_at = "-"
    for op in state.collectives:
        if op.done:
            done = code(op)
    for op in reversed(state.pending):
        if op.where:
            called_at = code(op.where)
    pending = listed(map(code, state.pending), most=PENDING)
    return (state.rank, md(state.backend), done, pending or "-", called_at)


def _ras(evidence: Evidence) -> str:
    if not evidence.ras:
        return ""
    last = evidence.ras[-1]
    missing = f"missing ranks {listed(last.missing)}" if last.missing else "no rank missing"
    summary = f"**NCCL's own report** ({code(last.id)}): {missing}, {count(len(last.complaints), 'complaint')}."
    return f"{summary}\n\n{details('All of it', fence(last.text))}"
