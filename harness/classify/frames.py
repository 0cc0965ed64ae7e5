"""Stacks in a case: the samples of the silence, whether they agree, and how a frame is spelt in a reason."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from harness.classify.facts import main_pid, silence_began_s
from harness.core.stacks import deciding_thread, python_frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.evidence import Frame, StackSample, ThreadStack
    from harness.core.verdict import Case


def spell(frame: Frame | None) -> str:
    """``acquire_forever (harness/specimens/backward_deadlock.py:21)``: the path cut to what tells."""
    if frame is None:
        return "a function without a name"
    return f"{plain(frame.function)} ({short_path(frame.file)}{f':{frame.line}' if frame.line else ''})"


def short_path(path: str) -> str:
    """``path`` from its package on: what follows site-packages, or else its last three parts."""
    _, found, rest = path.rpartition("/site-packages/")
    return rest if found else "/".join(PurePosixPath(path).parts[-3:]).removeprefix("//").removeprefix("/")


def plain(function: str) -> str:
    """A function's bare name: without class, enclosing function, template arguments, parameters, clone suffix."""
    name = function.replace("(anonymous namespace)::", "")
    while (
        shorter := re.sub(r"<(?!locals>|lambda>|module>|genexpr>|listcomp>|dictcomp>|setcomp>)[^<>]*>", "", name)
    ) != name:
        name = shorter
    name = re.sub(r"\(.*$|\[clone.*$|@.*$|\.(isra|part|cold|constprop|lto_priv)\b.*$", "", name).strip()
    return name if "::" in name else name.rpartition(".")[2] or name


def silent_samples(case: Case) -> tuple[StackSample, ...]:
    """The stacks of the training process since its last mark, in order, of all sources."""
    pid, since_s = main_pid(case), silence_began_s(case)
    return tuple(s for s in case.evidence.stacks if s.pid == pid and s.t_s > since_s and s.threads)


def native_samples(samples: Iterable[StackSample]) -> tuple[StackSample, ...]:
    """Those that show native frames, from the one source that has most of them; sources are never compared."""
    groups: dict[str, list[StackSample]] = {}
    for sample in samples:
        if sample.native:
            groups.setdefault(sample.source, []).append(sample)
    return tuple(max(groups.values(), key=len, default=()))


def identical(samples: Sequence[StackSample]) -> bool:
    """Whether the deciding thread stays where it is.

    Its Python frames are the same in all samples, line by line, and its native frames in all that have them. Which
    thread decides is taken from a sample with native frames, if there is one: only those show who waits for whom.
    """
    best = next((sample for sample in reversed(samples) if sample.native), None)
    decides = deciding_thread(best) if best is not None else None
    threads = [_thread(sample, decides.tid) if decides is not None else deciding_thread(sample) for sample in samples]
    if not threads or None in threads:
        return False
    python = {tuple((plain(f.function), f.file, f.line) for f in python_frames(t)) for t in threads if t is not None}
    return len(python) == 1 and distinct(native_samples(samples)) <= 1


def _thread(sample: StackSample, tid: int) -> ThreadStack | None:
    """The thread called ``tid``; a source that does not number threads as the kernel does gives its deciding one."""
    found = next((thread for thread in sample.threads if thread.tid == tid), None)
    return found or deciding_thread(sample)


def distinct(samples: Iterable[StackSample]) -> int:
    """How many different stacks the deciding thread has in ``samples``."""
    return len({thread.frames for sample in samples if (thread := deciding_thread(sample))})
