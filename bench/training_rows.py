"""The rows of ``training.py``: what each trains, on how many GPUs, and the configuration that it comes to."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run: where, how, what."""

    gpus: int
    mode: str
    attention: str = "nsa"
    checkpointing: str = "none"
    seq_len: int = 2048
    batch_per_gpu: int = 1
    steps: int = 500
    sdpa: str = ""
    """For dense attention: the backend of torch's attention; torch chooses if empty."""
    compile: str = "off"
    """``train.compile``; blocks are compiled in the first step, which no median counts."""
    cuda_graphs: str = "off"
    """``train.cuda_graphs``; blocks are captured before the first step."""
    bucket_views: bool = False
    """``parallel.gradient_as_bucket_view``: ddp then copies no average back into gradients."""
    routes: str = ""
    """Kernels by name, as ``window=triton selected=tiles``; the others as ``auto`` chooses."""
    limit_s: float = 60.0
    """The longest its steps may take."""
    beside: str = ""
    """What runs at the same time on the same GPUs: then only that it completes is of interest."""

    @property
    def name(self) -> str:
        """What identifies the row in messages and tables."""
        attention = f"{self.attention} {self.sdpa}".strip()
        attention += "" if self.compile == "off" else f" compiled ({self.compile})"
        attention += "" if self.cuda_graphs == "off" else " graphed"
        attention += " bucket views" * self.bucket_views
        attention += f" {self.routes}" if self.routes else ""
        beside = f" (beside {self.beside})" if self.beside else ""
        return (
            f"{self.gpus}x {self.mode} {attention} {self.checkpointing} S={self.seq_len} B={self.batch_per_gpu}{beside}"
        )


def production(mode: str, beside: str) -> list[Row]:
    """The production configuration with every kind of recomputation, on two GPUs that another mode trains on too."""
    row = Row(gpus=2, mode=mode, limit_s=150.0, beside=beside)
    return [replace(row, checkpointing=kind) for kind in ("none", "nonreentrant", "reentrant")]


def compare() -> list[Row]:
    """Sparse beside dense on two GPUs, at two lengths, with batches that fill them."""
    wide = Row(gpus=2, mode="ddp", steps=50, batch_per_gpu=16)
    long = replace(wide, batch_per_gpu=2, seq_len=16384)
    return [wide, replace(wide, attention="dense"), long, replace(long, attention="dense")]


def graphed(rows: list[Row]) -> list[Row]:
    """The same rows with every block replayed as a CUDA graph."""
    return [replace(row, cuda_graphs="blocks") for row in rows]


def alone(attention: str) -> list[Row]:
    """The same on one GPU, and one sequence, with blocks replayed and without."""
    row = Row(gpus=1, mode="single", attention=attention, steps=40)
    one = replace(row, steps=100)
    rows = [replace(row, batch_per_gpu=16), replace(row, batch_per_gpu=2, seq_len=16384), one]
    return [*rows, *graphed(rows)]


def on_one() -> list[Row]:
    """Sparse beside dense on one GPU that batches fill, row after row, with blocks replayed and without."""
    wide = Row(gpus=1, mode="single", steps=40, batch_per_gpu=16)
    rows = [wide, replace(wide, batch_per_gpu=2, seq_len=16384)]
    rows = [way for row in rows for way in (row, replace(row, attention="dense"))]
    return [*graphed(rows), *rows]


def graphs() -> list[Row]:
    """The production configuration as it is shipped, one sequence per GPU, with blocks replayed and without."""
    row = Row(gpus=2, mode="ddp", steps=100)
    rows = [row, replace(row, attention="dense")]
    return [*graphed(rows), *rows, *(replace(one, bucket_views=True) for one in graphed(rows))]


def libraries() -> list[Row]:
    """Sparse attention by libraries and gathering, which ``auto`` took on GPUs before it took tiles."""
    wide, _, long, _ = compare()
    return [replace(row, routes="compressed=packed window=flash selected=triton") for row in (wide, long)]


def tiles(*, compiled: str = "off") -> list[Row]:
    """Sparse attention over tiles by name; at 16,384 tokens, which is too long for it, selected attention is not."""
    wide, _, long, _ = compare()
    routes = "compressed=tiles window=tiles"
    rows = [replace(wide, routes=f"{routes} selected=tiles"), replace(wide, routes=routes)]
    return [replace(row, compile=compiled) for row in (*rows, replace(long, routes=routes))]


def more() -> list[Row]:
    """What else can be asked of two GPUs."""
    wide = Row(gpus=2, mode="ddp", steps=50, batch_per_gpu=16)
    return [
        replace(wide, mode="fsdp"),
        *(replace(wide, checkpointing=kind) for kind in ("nonreentrant", "selective")),
        replace(wide, batch_per_gpu=1, attention="dense"),
        replace(wide, attention="dense", sdpa="cudnn"),
        replace(wide, attention="dense", sdpa="cudnn", batch_per_gpu=2, seq_len=16384),
    ]


PARTS = {
    "production": lambda: [(production("ddp", "fsdp"), None), (production("fsdp", "ddp"), None)],
    "compare": lambda: [([*compare(), *graphed(compare())], None)],
    "alone": lambda: [(alone("nsa"), 0), (alone("dense"), 1)],
    "one": lambda: [(on_one(), 0)],
    "graphs": lambda: [(graphs(), None)],
    "more": lambda: [(more(), None)],
    "compiled": lambda: [([replace(row, compile="inductor") for row in compare()], None)],
    "libraries": lambda: [(libraries(), None)],
    "tiles": lambda: [(tiles(), None)],
    "tiles-compiled": lambda: [(tiles(compiled="inductor"), None)],
}
"""Lists of rows that run at the same time, each with the number of its GPU; None for both."""


def configuration(row: Row, *, smoke: bool):
    """The shipped configuration with what the row changes."""
    from nsa.train.effective import effective

    changes = {
        "model.attention": row.attention,
        "train.checkpointing": row.checkpointing,
        "train.compile": row.compile,
        "train.cuda_graphs": row.cuda_graphs,
        "train.seq_len": row.seq_len,
        "train.batch_size": row.batch_per_gpu * row.gpus,
        "train.steps": row.steps,
        "train.warmup_steps": row.steps // 10,
        "train.save_every": 0,
        "train.eval_every": 0,
        "train.out_dir": "",
        "parallel.mode": row.mode,
        "parallel.gradient_as_bucket_view": row.bucket_views,
        "parallel.timeout_s": 120.0,
    }
    changes |= {f"kernels.{op}": name for op, name in (part.split("=") for part in row.routes.split())}
    if smoke:
        changes |= {"kernels.policy": "auto"}
        small = {"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_groups": 2, "d_k": 8, "d_v": 8, "l": 8, "d": 4,
                 "l_slc": 8, "n": 4, "w": 16}  # fmt: skip
        changes |= {f"model.{name}": value for name, value in small.items()}
        changes |= {"train.device": "cpu", "train.batch_size": row.gpus}
        changes |= {"train.compile": "off" if row.compile == "off" else "aot_eager"}
        changes |= {"train.seq_len": row.seq_len // 32, "train.steps": 4, "train.warmup_steps": 1}
    base = f"m7c_125m_{row.gpus}xa100_production"
    return effective(base, environ={}).config.with_values(changes)
