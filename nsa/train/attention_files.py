"""``k_stats.csv`` and ``gate_stats.csv``: what attention does, rows without a head."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from nsa.train.probe import Edge, NullProbe, Phase

if TYPE_CHECKING:
    from io import RawIOBase

    from nsa.attention.stats import AttentionWatch
    from nsa.train.probe import TrainingState

GATE_COLUMNS = ("gate_cmp", "gate_slc", "gate_win", "gate_entropy_mean", "gate_entropy_min")
"""Columns of ``gate_stats.csv`` after step and layer: mean gates, and the entropy of their shares in nats."""

K_COLUMNS = ("k_mean", "k_max", "rows", "pct_at_max")
"""Columns of ``k_stats.csv`` after step: selected blocks per row, rows, and percent of rows with all n."""


class AttentionFiles(NullProbe):
    """``k_stats.csv`` and ``gate_stats.csv``: what the first block selects, and what every block's gates prefer.

    Watched in the first forward of the logged steps only: the numbers are read from the device. Blocks that are
    replayed as CUDA graphs call no hook; they write what is watched into memory of their own, which is read instead.
    """

    def __init__(self, k_stats: RawIOBase, gate_stats: RawIOBase, *, every: int) -> None:
        self._k_stats, self._gate_stats, self._every = k_stats, gate_stats, every
        self._model: object = None
        self._replayed: AttentionWatch | None = None
        self._open: ExitStack | None = None
        self._watch: AttentionWatch | None = None
        self._seen: int | None = None

    def built(self, state: TrainingState) -> None:
        """Keep the model; its hooks are there during a watched forward only."""
        from nsa.attention.stats import AttentionWatch

        self._model = state.model
        self._replayed = state.watch if isinstance(state.watch, AttentionWatch) else None

    def mark(self, *, phase: Phase, edge: Edge, step: int | None, detail: str | None = None) -> None:
        """Begin to watch with a forward, and write when it ends."""
        if phase != Phase.FORWARD or step is None:
            return
        if edge == Edge.BEGIN and step % self._every == 0 and step != self._seen:
            self._begin(step)
        elif edge == Edge.END and self._open is not None and self._watch is not None:
            self._open.close()
            self._open = None
            self._write(step, self._watch)

    def _begin(self, step: int) -> None:
        import torch

        from nsa.attention.stats import watch_attention

        assert isinstance(self._model, torch.nn.Module)
        self._seen, self._open = step, ExitStack()
        self._watch = self._replayed or self._open.enter_context(watch_attention(self._model))

    def _write(self, step: int, watch: AttentionWatch) -> None:
        for i, layer in enumerate(watch.layers):
            gates = layer.gate_facts()
            if gates:
                self._gate_stats.write(_row(step + 1, i, *(gates[name] for name in GATE_COLUMNS)))
            chosen = layer.selection_facts() if i == 0 else {}
            if chosen:
                self._k_stats.write(_row(step + 1, *(chosen[name] for name in K_COLUMNS)))


def _row(*cells: float) -> bytes:
    return (",".join(f"{cell:.6g}" for cell in cells) + "\n").encode()
