"""What a run tells: JSON lines on standard output, and files in ``train.out_dir`` in the original reports' formats.

``heartbeat_rank<r>.jsonl`` has a line at every phase boundary of every rank, begin and end named, and
``liveness_rank<r>.jsonl`` one every few seconds from a process of its own; ``training.csv`` and ``val.csv`` have a
row per step and per held-out loss; ``k_stats.csv`` and ``gate_stats.csv`` what attention chose in the logged steps;
``fallback_counters.csv`` which kernels ran; ``mem_*`` the memory of this process; ``tb/`` curves; ``env.json`` what
ran, where and with which settings from where. A line is one write to a file opened for appending, so it survives
whatever ends the process.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nsa.env import related
from nsa.train.attention_files import AttentionFiles
from nsa.train.board import Board, is_installed
from nsa.train.census import MARK
from nsa.train.liveness import liveness
from nsa.train.memory_files import MemoryFiles
from nsa.train.probe import NullProbe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from io import RawIOBase

    from nsa.config import RunConfig
    from nsa.train.liveness import Page
    from nsa.train.probe import Edge, Phase, Probe

STATS = ("k_stats.csv", "gate_stats.csv")
"""Files about what attention does, rows without a head."""

ROWS = ("training.csv", "val.csv", "fallback_counters.csv")
"""Files of rows without a head: ``step,loss,lr,toks``, ``step,val_loss,ppl``, and ``step``, the counts of
``FALLBACKS``, that of all kernels that stand in for another, and ``op=kernel`` for every operator."""

FALLBACKS = (
    ("selected", "triton"),
    ("selected", "cuda"),
    ("selected", "packed"),
    ("selected", "masked"),
    ("compressed", "flash-attn"),
    ("window", "flash-attn"),
)
"""Kernels that another may stand in for, in the reports' order. It is decided when the model is built, under
``kernels.policy = 'auto'``, never at call time: a count is 0 or 1 and the same in every row."""

SILENCE_S = 5.0
"""The longest time without a printed line between two steps that end within it."""


@contextmanager
def watching(config: RunConfig, *, rank: int, sources: Mapping[str, str]) -> Iterator[list[Probe]]:
    """The observers of a run that was started from the command line; their files are closed at the end."""
    probes: list[Probe] = []
    if rank == 0:
        probes.append(Lines(every=config.train.log_every, last=config.train.steps - 1))
    with ExitStack() as files:
        if config.train.out_dir:
            folder = Path(config.train.out_dir)
            folder.mkdir(parents=True, exist_ok=True)
            beats = files.enter_context((folder / f"heartbeat_rank{rank}.jsonl").open("ab", buffering=0))
            probes += [
                Heartbeat(beats, rank=rank),
                MemoryFiles(folder, rank=rank, every=config.train.mem_every or 1 << 62),
            ]
            if config.train.liveness_s:
                every_s, speaks = config.train.liveness_s, rank == 0
                probes.append(Here(files.enter_context(liveness(folder, rank=rank, every_s=every_s, speaks=speaks))))
            if rank == 0:
                probes.append(RunFiles(folder, files, config=config, sources=sources))
                if config.train.tensorboard and is_installed():
                    probes.append(files.enter_context(closing(Board(folder, every=config.train.log_every))))
                stats = [files.enter_context((folder / name).open("ab", buffering=0)) for name in STATS]
                if config.train.compile == "off":  # hooks inside a compiled block would compile it anew
                    probes.append(AttentionFiles(*stats, every=config.train.log_every))
        yield probes


class Lines(NullProbe):
    """The kernel table and the logged steps' facts, as JSON lines on standard output."""

    def __init__(self, *, every: int, last: int, now: Callable[[], float] = time.monotonic) -> None:
        self._every, self._last, self._now = every, last, now
        self._said = -SILENCE_S

    def resolved(self, table: Sequence[Mapping[str, str]]) -> None:
        """One line for the whole table."""
        self._say({"kernels": [dict(row) for row in table]})

    def step_done(self, *, step: int, facts: Mapping[str, float]) -> None:
        """One line for the first and last step, every so many, and whenever it was silent for 5 s."""
        is_due = step % self._every == 0 or step == self._last or self._now() - self._said >= SILENCE_S
        if is_due:
            self._said = self._now()
            self._say({"step": step, **facts})

    def _say(self, record: Mapping[str, object]) -> None:
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()


class Heartbeat(NullProbe):
    """``ts, iso, pid, rank, step, msg`` and the phase, at every mark; steps also carry their facts."""

    def __init__(self, file: RawIOBase, *, rank: int) -> None:
        self._rank, self._file = rank, file
        self._beat(None, "boot")

    def mark(self, *, phase: Phase, edge: Edge, step: int | None, detail: str | None = None) -> None:
        """Where this rank is; ``msg`` is ``forward_begin``, ``forward_end``, or ``forward_progress`` with detail."""
        self._beat(step, f"{phase}_{edge}", {"phase": str(phase), **({"detail": detail} if detail else {})})

    def step_done(self, *, step: int, facts: Mapping[str, float]) -> None:
        """A step's facts, as ``msg`` progress."""
        self._beat(step, "progress", {**facts, **_memory()})

    def _beat(self, step: int | None, msg: str, more: Mapping[str, object] | None = None) -> None:
        now = time.time()
        iso = datetime.fromtimestamp(now, UTC).isoformat()
        record = {"ts": now, "iso": iso, "pid": os.getpid(), "rank": self._rank, "step": step, "msg": msg}
        self._file.write(json.dumps({**record, **(more or {})}).encode() + b"\n")


class Here(NullProbe):
    """Marks the page that the liveness lines are written from."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def mark(self, *, phase: Phase, edge: Edge, step: int | None, detail: str | None = None) -> None:
        """Where this rank is, in a microsecond and without a system call."""
        self._page.mark(phase, edge, step)


class RunFiles(NullProbe):
    """What rank 0 writes: ``env.json``, ``kernels.json``, ``dtypes_report.txt`` and the rows of the CSV files."""

    def __init__(self, folder: Path, files: ExitStack, *, config: RunConfig, sources: Mapping[str, str]) -> None:
        self._folder, self._every, self._fallbacks = folder, config.train.log_every, b""
        self._censuses: list[dict[str, object]] = []
        self._rows = {name: files.enter_context((folder / name).open("ab", buffering=0)) for name in ROWS}
        about = {
            "time": datetime.now(UTC).isoformat(),
            "python": platform.python_version(),
            "argv": sys.argv,
            "env": related(),
            "config": config.to_mapping(),
            "sources": dict(sources),
        }
        _put(folder / "env.json", json.dumps(about, indent=1))

    def mark(self, *, phase: Phase, edge: Edge, step: int | None, detail: str | None = None) -> None:
        """A census is kept, one per counted step."""
        if detail is not None and detail.startswith(MARK):
            self._censuses.append({"step": step, **json.loads(detail.removeprefix(MARK))})
            _put(self._folder / "census.json", json.dumps(self._censuses, indent=1))

    def resolved(self, table: Sequence[Mapping[str, str]]) -> None:
        """Which kernel runs each operator and why; one that stands in for another is counted from here on."""
        refused = {(row["op"], row["reason"].partition(" was asked for but")[0]) for row in table}
        counts = [int(asked in refused) for asked in FALLBACKS]
        total = sum("was asked for but" in row["reason"] for row in table)
        names = [f"{row['op']}={row['kernel']}" for row in table]
        self._fallbacks = ",".join(map(str, [*counts, total, *names])).encode()
        _put(self._folder / "kernels.json", json.dumps([dict(row) for row in table], indent=1))

    def built(self, state: object) -> None:
        """The types of all parameters and buffers, and torch's version, which is known by now."""
        import torch

        model = getattr(state, "model", None)
        assert isinstance(model, torch.nn.Module)
        _put(self._folder / "dtypes_report.txt", dtypes_report(model))
        about = json.loads((self._folder / "env.json").read_text(encoding="utf-8"))
        about |= {
            "torch": torch.__version__,
            "cuda_available": torch.cuda.is_available(),
            "tensorboard": is_installed(),
        }
        _put(self._folder / "env.json", json.dumps(about, indent=1))

    def step_done(self, *, step: int, facts: Mapping[str, float]) -> None:
        """Rows without a head, steps counted from 1."""
        self._row("training.csv", step, facts["loss"], facts["lr"], facts["tokens_per_s"])
        if "val_loss" in facts:
            perplexity = math.exp(min(facts["val_loss"], 700.0))
            self._row("val.csv", step, facts["val_loss"], perplexity)
        if step % self._every == 0:
            self._rows["fallback_counters.csv"].write(b"%d,%s\n" % (step + 1, self._fallbacks))

    def _row(self, name: str, step: int, *cells: float) -> None:
        self._rows[name].write((",".join([str(step + 1), *(f"{cell:.6g}" for cell in cells)]) + "\n").encode())


def dtypes_report(model: object) -> str:
    """How many elements have which type, then every parameter and buffer with name, type and shape."""
    import torch

    assert isinstance(model, torch.nn.Module)
    named = [("PARAM", n, t) for n, t in model.named_parameters()] + [
        ("BUFFER", n, t) for n, t in model.named_buffers()
    ]
    counts: dict[str, int] = {}
    for _, _, tensor in named:
        counts[str(tensor.dtype)] = counts.get(str(tensor.dtype), 0) + tensor.numel()
    total = max(1, sum(counts.values()))
    lines = ["# DTYPE SUMMARY (elements)"]
    lines += [f"{dtype}: {n} ({100 * n / total:.2f}%)" for dtype, n in sorted(counts.items())]
    lines += [f"{kind} {name} {tensor.dtype} {tuple(tensor.shape)}" for kind, name, tensor in named]
    return "\n".join(lines) + "\n"


def _memory() -> dict[str, int]:
    """GPU memory of this process, MiB, under the reports' names; nothing on a CPU."""
    import torch

    if not torch.cuda.is_initialized():
        return {}
    return {
        "gpu_mem_alloc": torch.cuda.memory_allocated() >> 20,
        "gpu_mem_reserved": torch.cuda.memory_reserved() >> 20,
    }


def _put(path: Path, text: str) -> None:
    """Write a whole file or leave the old one."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
