"""What ``stacks`` prints: the groups, the stack of each group once, every rank in one line; or all of it as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.codec import SCHEMA, to_json
from harness.reading.frames import is_noise, telling_frame
from harness.reading.places import motion_of, sentence, short_file, subject, where
from harness.report.clean import clean
from harness.report.stacks import busy_threads, thread_name
from harness.report.text import count, line_width, short_path, wrap
from harness.report.tried import grouped
from harness.report.words import WHO_MAY_LOOK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.evidence import Frame, StackSample
    from harness.observe.job import JobTree, Member
    from harness.reading.places import RankGroup, RankSeen

WIDTH = 80
"""What stands in a line of its own, a frame or a row, is cut here."""

_DEEPEST = 24
"""Frames shown of one stack; what called those is the program's start."""


def as_text(job: JobTree, ranks: Sequence[RankSeen], groups: Sequence[RankGroup], *, all_threads: bool) -> str:
    """The whole answer in lines that fit."""
    lines = [_headline(job, ranks), ""]
    for group in groups:
        first, *rest = wrap(clean(sentence(group, total=len(ranks))), width=line_width() - 4)
        lines += [f"  {first}", *(f"    {line}" for line in rest)]
    for group in groups:
        if not group.missing:
            lines += ["", *_stack(group, total=len(ranks), all_threads=all_threads)]
    return "\n".join([*lines, "", *_table(ranks), *_helpers(job), *_next_step(ranks)])


def as_data(job: JobTree, ranks: Sequence[RankSeen], groups: Sequence[RankGroup]) -> dict[str, object]:
    """The whole answer for a program."""
    helpers = {worker.member.pid: worker.helpers for worker in job.workers}
    return {
        "schema": SCHEMA,
        "launcher": {"pid": job.launcher.pid, "command": job.launcher.command},
        "groups": [_group_data(group, total=len(ranks)) for group in groups],
        "ranks": [_rank_data(rank, helpers.get(rank.pid or 0, ())) for rank in ranks],
    }


def _group_data(group: RankGroup, *, total: int) -> dict[str, object]:
    return {
        "sentence": sentence(group, total=total),
        "ranks": [rank.rank for rank in group.ranks],
        "pids": [rank.pid for rank in group.ranks],
        "missing": group.missing,
        "telling": group.telling,
        "frames": to_json(group.frames),
    }


def _rank_data(rank: RankSeen, helpers: Iterable[tuple[Member, str]]) -> dict[str, object]:
    return {
        "rank": rank.rank,
        "pid": rank.pid,
        "node": rank.node,
        "state": rank.state,
        "where": where(rank.thread) if rank.thread else None,
        "missing": rank.missing,
        "motion": to_json(motion_of(rank)),
        "helpers": [{"pid": member.pid, "kind": kind} for member, kind in helpers],
        "stacks": to_json(rank.stacks),
        "looks": to_json(rank.looks),
    }


def _headline(job: JobTree, ranks: Sequence[RankSeen]) -> str:
    many = count(len(ranks), "rank" if ranks[0].rank is not None else "Python process")
    if not job.launcher.pid:  # of several nodes
        return f"{many} of {job.launcher.command}"
    if len(job.workers) == 1 and job.workers[0].member == job.launcher:
        return f"{many}, process {job.launcher.pid} ({job.launcher.command})"
    return f"{many} below process {job.launcher.pid} ({job.launcher.command})"


def _stack(group: RankGroup, *, total: int, all_threads: bool) -> list[str]:
    rank = group.ranks[0]
    sample, thread = rank.stacks[-1], rank.thread
    if thread is None:
        return []
    name = f"{subject(group.ranks, total=total)}, {thread_name(thread, rank.pid)}"
    title = f"{name}, innermost frame first, by {sample.source}"
    lines = [*wrap(title), *_frames(group.frames, telling=group.telling)]
    if all_threads:
        for member in group.ranks:
            lines += _all_threads(member)
    elif busy := busy_threads(sample, beside=thread):
        lines += [f"  other threads of {rank.name}:", *(_cut(f"     {line}") for line in busy)]
    return lines


def _all_threads(rank: RankSeen) -> list[str]:
    lines: list[str] = []
    sample: StackSample = rank.stacks[-1]
    for thread in sample.threads:
        if thread is rank.thread or (rank.thread and thread.tid == rank.thread.tid):
            continue
        telling = telling_frame(thread)
        index = next((i for i, frame in enumerate(thread.frames) if frame is telling), None)
        lines += [f"  {rank.name}, {thread_name(thread, rank.pid)}", *_frames(thread.frames, telling=index)]
    return lines


def _frames(frames: Sequence[Frame], *, telling: int | None) -> list[str]:
    lines: list[str] = []
    for i, frame in enumerate(frames):
        if not is_noise(frame):
            lines.append(_frame(frame, marked=i == telling))
    if len(lines) > _DEEPEST:
        lines[_DEEPEST:] = [f"     ... {len(lines) - _DEEPEST} more, outwards"]
    return lines or ["     no frame that can be named"]


def _frame(frame: Frame, *, marked: bool) -> str:
    mark = "  => " if marked else "     "
    line = f":{frame.line}" if frame.line else ""
    head, path = f"{mark}{clean(frame.function)} (", f"{clean(short_path(frame.file))}{line})"
    room = WIDTH - len(head)
    if len(path) > room:  # the end of a path tells more than its beginning
        path = f"...{path[3 - room :]}" if room > 20 else f"{short_file(frame)})"
    return _cut(f"{head}{path}")


def _table(ranks: Sequence[RankSeen]) -> Iterable[str]:
    yield f"{'rank':>6} {'pid':>8}  {'state':<6} {'CPU':>5}  where"
    for rank in ranks:
        number = "-" if rank.rank is None else rank.rank
        motion = motion_of(rank)
        cpu = f"{100 * motion.cpu_s / motion.seconds:.0f} %" if motion and motion.seconds else "-"
        place = rank.missing or (where(rank.thread) if rank.thread else "-")
        node = f"{rank.node}: " if rank.node else ""
        yield _cut(f"{number:>6} {rank.pid or '-':>8}  {rank.state or '-':<6} {cpu:>5}  {clean(node + place)}")


def _helpers(job: JobTree) -> Iterable[str]:
    for worker in job.workers:
        texts: list[str] = []
        for kind, helpers in grouped(worker.helpers, lambda helper: helper[1]).items():
            pids = [member.pid for member, _ in helpers]
            texts.append(f"{len(pids)} {kind}{'s' if len(pids) > 1 else ''} ({_pids(pids)})")
        if texts:
            name = f"process {worker.member.pid}" if worker.member.rank is None else f"rank {worker.member.rank}"
            yield from wrap(f"helpers of {name}: {', '.join(texts)}")


def _next_step(ranks: Sequence[RankSeen]) -> list[str]:
    """What to do where somebody may not look into a rank, the first of them."""
    for rank in ranks:
        if rank.not_allowed:
            return ["", *wrap(f"{rank.name}: next: {WHO_MAY_LOOK}")]
    return []


def _pids(pids: Sequence[int]) -> str:
    numbers = ", ".join(map(str, pids[:4]))
    return numbers if len(pids) <= 4 else f"{numbers} and {len(pids) - 4} more"


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."
