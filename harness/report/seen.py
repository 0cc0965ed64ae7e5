"""What was seen of one trial, piece by piece, as Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.core.outcome import Ending
from harness.reading.frames import telling_frame
from harness.reading.stillness import STILL_CPU_S, between
from harness.report.stacks import (
    deciding_stack,
    elsewhere,
    lines,
    place,
    rank_name,
    ranks_of,
    same_in,
    sentences_of,
    who_tells,
)
from harness.report.stacks import variables as locals_by_frame
from harness.report.text import bullets, code, count, details, fence, listed, md, seconds, short_path, size, table
from harness.report.tried import latest_of_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.devices import GpuSample
    from harness.core.evidence import CollectiveState, Evidence, ProcessState, RankFacts, StackSample
    from harness.core.outcome import Cleanup, Outcome
    from harness.core.record import TrialRecord
    from harness.core.trial import Budget, Limit, Prediction


LOG_LINES = 30
MARKS = 6
ELSEWHERE = 40
_FILE = re.compile(r'File "([^"]+)"')


def where(evidence: Evidence, record: TrialRecord) -> str:
    """The deciding thread's stack, the function that waits pointed at; all other threads folded."""
    decides = deciding_stack(evidence, record.verdict)
    if decides is None:
        return "No stack could be taken; why, is below." if evidence.failures else "No stack was taken."
    sample, thread = decides
    same, alike = same_in(evidence, sample, thread)
    frame = telling_frame(thread)
    title = f"**Where it was:** {code(place(frame))}" if frame else "**Where it was**"
    with_c = " with C frames" if sample.native else ""
    since = "into the watch" if record.outcome.ending is Ending.STILL_RUNNING else "after the start"
    who = f"thread {md(thread.name or thread.tid)} ({thread.tid}) of {rank_name(sample.rank, record, evidence)}"
    how = (
        f"{who}, {seconds(sample.t_s)} {since}, by {md(sample.source)}{with_c}, {code(sample.id)}. The same "
        f"stack in {same} of {count(alike, 'sample')}{with_c}. Innermost first; `=>` is the frame to look at"
        f"{', `[C]` is compiled code' if sample.native else ''}."
    )
    others = _others(sample, thread.tid)
    return "\n\n".join(filter(None, (f"{title}: {how}", fence(lines(thread)), others)))


def processes(evidence: Evidence, record: TrialRecord) -> str:
    """Where each process of a program without ranks was that the verdict is about, and ``elsewhere``; or empty."""
    those = () if evidence.ranks else who_tells(evidence, record.verdict)
    parts: list[str] = []
    if len(those) > 1:
        texts = bullets(f"{md(text)}." for text in sentences_of(those))
        parts.append(f"**Processes,** the odd one out first:\n\n{texts}")
    others = elsewhere(evidence, record.verdict)
    if others:
        places = [f"{md(text)}." for text in others[:ELSEWHERE]]
        places += [f"{len(others) - ELSEWHERE} more"] if len(others) > ELSEWHERE else []
        parts.append(f"**Elsewhere in the program's own code:**\n\n{bullets(places)}")
    return "\n\n".join(parts)


def variables(evidence: Evidence) -> str:
    """The locals that the user asked for, a block for each frame."""
    blocks: list[str] = []
    for at, values in locals_by_frame(evidence):
        text = "\n".join(values)
        blocks.append(f"{code(at)}\n\n{fence(text)}")
    return f"**Its variables there:**\n\n{chr(10).join(blocks)}" if blocks else ""


def _others(sample: StackSample, tid: int) -> str:
    blocks = [f"{md(t.name or 'thread')} ({t.tid})\n\n{fence(lines(t))}" for t in sample.threads if t.tid != tid]
    if not blocks:
        return ""
    which = "thread" if len(blocks) == 1 else f"{len(blocks)} threads"
    return details(f"The other {which} at that moment", "\n\n".join(blocks))


def raised(evidence: Evidence, rank: int | None) -> str:
    """The last word of the worker at fault, of ``rank`` where there are several, when it was an exception."""
    result = evidence.result_of(rank)
    if result is None or result.exception is None:
        return ""
    message = " ".join((result.message or "").split())
    title = f"**Raised:** {code(result.exception)}" + (f": {code(message[:300])}" if message else "")
    return f"{title}\n\n{details('Traceback', fence(near(result.traceback)))}" if result.traceback else title


def near(text: str) -> str:
    """``text`` with the files of tracebacks as one would say them, wherever they were installed."""
    return _FILE.sub(lambda match: f'File "{short_path(match[1])}"', text)


def threads(evidence: Evidence) -> str:
    """What each thread did between two looks at /proc during which no stack dumper ran."""
    pair = _pair(evidence.processes)
    if pair is None:
        return ""
    first, last = pair
    before = first.thread
    rows: list[tuple[object, ...]] = []
    for thread in sorted(last.threads, key=lambda t: -(t.cpu_s - (before[t.tid].cpu_s if t.tid in before else 0.0))):
        old = before.get(thread.tid)
        switches = thread.voluntary_switches + thread.involuntary_switches
        switched = switches - (old.voluntary_switches + old.involuntary_switches) if old else switches
        cpu_s = thread.cpu_s - old.cpu_s if old else thread.cpu_s
        name, where = md(thread.name), code(thread.wchan or "-")
        rows.append((thread.tid, name, md(thread.state), where, f"{cpu_s:.3f}", switched))
    head = ("thread", "name", "state", "waits in the kernel at", "CPU s", "switches")
    moved = f"**Between {code(first.id)} and {code(last.id)}:** {md(between(first, last))}."
    memory = f"Memory {size(last.rss_bytes)}, {count(last.children, 'other process')}."
    body = table(head, rows, right=(0, 4, 5))
    return f"{moved} {memory}\n\n{details(f'Threads: state and CPU time ({len(rows)})', body)}"


def used_no_cpu(evidence: Evidence) -> bool:
    """Whether no thread used CPU time between two looks at /proc during which no stack dumper ran."""
    pair = _pair(evidence.processes)
    if pair is None:
        return False
    first, last = pair
    before = first.thread
    return sum(thread.cpu_s - before.get(thread.tid, thread).cpu_s for thread in last.threads) < STILL_CPU_S


def _pair(looks: tuple[ProcessState, ...]) -> tuple[ProcessState, ProcessState] | None:
    by_id = {look.id: look for look in looks}
    pairs = [(by_id[look.undisturbed_since], look) for look in looks if look.undisturbed_since in by_id]
    if not pairs and len(looks) > 1:
        pairs = [(looks[0], looks[-1])]
    return max(pairs, key=lambda pair: pair[1].t_s - pair[0].t_s, default=None)


def timeline(evidence: Evidence, outcome: Outcome) -> str:
    """The last marks, the samples, the signals that we sent, and the end, by the clock of the trial."""
    events = sorted(_events(evidence, outcome), key=lambda event: event[0])
    text = "\n".join(f"{t_s:9.2f} s  {what}" for t_s, what in events)
    marks = evidence.heartbeats_total
    if not marks and outcome.ending is Ending.STILL_RUNNING:
        return details(f"Timeline of {seconds(outcome.duration_s)} of watching", fence(text))
    silence = f"silent for the last {seconds(evidence.silence_s)}" if marks else f"in {seconds(outcome.duration_s)}"
    return details(f"Timeline: {count(marks, 'mark')}{',' if marks else ''} {silence}", fence(text))


def _events(evidence: Evidence, outcome: Outcome) -> Iterator[tuple[float, str]]:
    for mark in evidence.heartbeats[-MARKS:]:
        step = "" if mark.step is None else f", step {mark.step}"
        detail = f", {mark.detail}" if mark.detail else ""
        yield mark.t_s, f"{mark.phase} {mark.edge}{step}{detail}"
    for sample in evidence.stacks:
        yield sample.t_s, f"stacks taken by {sample.source} ({sample.id})"
    for t_s, name, processes in outcome.cleanup.signals:
        yield t_s, f"we sent {name} to {count(processes, 'process')}"
    yield outcome.duration_s, "end of the watch" if outcome.ending is Ending.STILL_RUNNING else "end"


def logs(evidence: Evidence, outcome: Outcome) -> str:
    """The end of what the program printed; of a job that somebody else started it may be nowhere to be read."""
    if not evidence.logs and outcome.ending is Ending.STILL_RUNNING:
        return "What it printed was not seen."
    parts: list[str] = []
    for log in evidence.logs:
        if not log.text.strip():
            continue
        tail = log.text.strip("\n").splitlines()[-LOG_LINES:]
        dropped = f", {size(log.dropped_bytes)} not kept" if log.dropped_bytes else ""
        which = "line" if len(tail) == 1 else f"{len(tail)} lines"
        summary = f"Last {which} of {md(log.stream)} ({size(log.size_bytes)}{dropped})"
        parts.append(details(summary, fence(near("\n".join(tail)))))
    return "\n\n".join(parts) if parts else "It printed nothing."


def unusable(evidence: Evidence) -> str:
    """Sources that could not be used, and why."""
    if not evidence.failures:
        return ""
    rows = bullets(f"{md(f.source)} ({code(f.id)}): {md(f.reason)}" for f in evidence.failures)
    return f"Not available:\n\n{rows}"


def limits(budget: Budget) -> str:
    """Every limit with where it came from."""
    return "; ".join((_limit("start-up", budget.startup), _limit("stall", budget.stall), _limit("total", budget.total)))


def _limit(name: str, limit: Limit) -> str:
    """``stall 8.5 s (learned ..)``, or ``no total limit (none was set)``."""
    amount = f"no {name} limit" if limit.is_endless else f"{name} {seconds(limit.seconds)}"
    return f"{amount} ({md(limit.source)})"


def healthy(prediction: Prediction | None) -> str:
    """How long a healthy trial should take here."""
    if prediction is None:
        return "not predicted: no trial like it had passed before"
    return (
        f"{prediction.least}{seconds(prediction.total_s)} predicted, taken as healthy up to "
        f"{seconds(prediction.total_high_s)}; longest silence {seconds(prediction.silence_s)}, up to "
        f"{seconds(prediction.silence_high_s)} ({md(prediction.source)})"
    )


def cleanup(done: Cleanup, *, is_page: bool = True) -> str:
    """What was sent, what ended, what is left; for a page or a terminal."""
    each = (f"{name} to {count(n, 'process')} at {seconds(t_s)}" for t_s, name, n in done.signals)
    signals = ", ".join(each) or "no signal needed"
    if done.gone:
        return f"{signals}; {count(done.ended, 'process')} ended, no process left{_files(done)}"
    survivors = "; ".join(map(str, done.survivors))
    still_there = f"**still there:** {md(survivors)}" if is_page else f"still there: {survivors}"
    return f"{signals}; {still_there}{_files(done)}"


def _files(done: Cleanup) -> str:
    text = ""
    if done.removed:
        text += f"; removed, made by the trial: {', '.join(map(code, done.removed))}"
    if done.kept:
        text += f"; left alone, not shown to be the trial's: {', '.join(map(code, done.kept))}"
    return text


PENDING = 6


def ranks(evidence: Evidence, outcome: Outcome) -> str:
    """The ranks by place, the odd one out first, then each rank's last sign; empty for a single process.

    Of a job that somebody else started no sign is known but that a rank has ended.
    """
    if len(evidence.ranks) < 2:
        return ""
    places = sentences_of(ranks_of(evidence))
    is_marked = outcome.ending is not Ending.STILL_RUNNING or any(facts.heartbeats_total for facts in evidence.ranks)
    body = _last_signs(evidence) if is_marked else _ends(evidence)
    if not places and not is_marked:
        return f"**Ranks:**\n\n{body}" if body else ""
    if not places:  # of a rank that moved on, its stacks say where it was, not where it is
        return f"**Ranks,** the longest silence first:\n\n{body}"
    where = bullets(f"{md(sentence)}." for sentence in places)
    return f"**Ranks,** the odd one out first:\n\n{where}\n\n{body}".rstrip()


def _last_signs(evidence: Evidence) -> str:
    head = ("rank", "steps done", "last mark", "silent for", "ended by itself")
    by_silence = sorted(evidence.ranks, key=lambda facts: (-facts.silence_s, facts.rank))
    rows: list[tuple[object, ...]] = []
    for facts in by_silence:
        silent = seconds(facts.silence_s) if facts.ended_s is None else "-"
        rows.append((facts.rank, facts.steps_done, _last(facts), silent, _ended(facts)))
    return table(head, rows, right=(0, 1, 3))


def _ends(evidence: Evidence) -> str:
    if all(facts.ended_s is None for facts in evidence.ranks):
        return ""
    return table(("rank", "ended by itself"), [(facts.rank, _ended(facts)) for facts in evidence.ranks], right=(0,))


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
