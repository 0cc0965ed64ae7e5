"""The same attention as a Python loop over every token: right numbers, cost linear in layers times tokens.

This is how nsa-vibe, the system of the original incident reports, ran its default prefill: about 150 autograd
nodes and 15 host synchronisations per token and layer. It is kept as a subject for diagnosis: a healthy run
that is far too slow. Never a fallback; choose it with ``model.attention = "legacy-sequential"``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nsa.attention.layer import Heads, NsaAttention
from nsa.errors import ConfigError
from nsa.kernels.scores.torch import block_scores

if TYPE_CHECKING:
    from nsa.attention.cache import LayerCache
    from nsa.attention.rope import Turns


class SequentialAttention(NsaAttention):
    """Same parameters and same result as ``NsaAttention``, one token at a time."""

    def attended(self, x_BTX: Tensor, turn: Turns, cu_seqlens: Tensor | None, cache: LayerCache | None) -> Tensor:
        """Attend token by token; one document a row, all branches, no cache."""
        if cu_seqlens is not None or cache is not None or self.config.branches != "all":
            raise ConfigError(
                "legacy-sequential attention takes one document a row (or boundaries as numbers), all branches and no "
                "cache; use model.attention = 'nsa'"
            )
        heads, gate_BTHC = self.project(x_BTX, turn), self.gate(x_BTX)
        compressed = self.compressed_keys(heads.k["cmp"], turn.blocks), self.compressed_values(heads.v["cmp"])
        rows = [
            torch.stack([self._token(heads, compressed, gate_BTHC, b, t) for t in range(x_BTX.shape[1])])
            for b in range(x_BTX.shape[0])
        ]
        return self.o_proj(torch.stack(rows).flatten(2))

    def _token(self, heads: Heads, compressed: tuple[Tensor, Tensor], gate_BTHC: Tensor, b: int, t: int) -> Tensor:
        """Output [H, E] of one token: every group on its own, then the heads side by side."""
        group = self.config.n_heads // self.config.n_kv_groups
        n_cmp, start = self.layout.n_cmp(t + 1), max(0, t + 1 - self.layout.w)
        parts = []
        for g in range(self.config.n_kv_groups):
            q_RD = heads.q_BTHD[b, t, g * group : (g + 1) * group]
            cmp_RE, p_RC = _attend(q_RD, compressed[0][b, :n_cmp, g], compressed[1][b, :n_cmp, g])
            slc_RE = self._selected_blocks(heads, q_RD, p_RC, b, t, g)
            win_RE, _ = _attend(q_RD, heads.k["win"][b, start : t + 1, g], heads.v["win"][b, start : t + 1, g])
            g_cmp, g_slc, g_win = gate_BTHC[b, t, g * group : (g + 1) * group].split(1, dim=1)
            parts.append(cmp_RE * g_cmp + slc_RE * g_slc + win_RE * g_win)
        return torch.cat(parts)

    def _selected_blocks(self, heads: Heads, q_RD: Tensor, p_RC: Tensor, b: int, t: int, g: int) -> Tensor:
        """Selected branch of one token and group; reads every chosen block number back to the host."""
        layout = self.layout
        with torch.no_grad():
            score_J = block_scores(p_RC.sum(0), layout.slc_of(t) + 1, layout)
            score_J[list(layout.forced(t))] = torch.inf
            order_J = score_J.sort(descending=True, stable=True).indices
        chosen = sorted(int(order_J[slot].item()) for slot in range(layout.n_selected(t)))
        spans = [slice(j * layout.l_slc, min((j + 1) * layout.l_slc, t + 1)) for j in chosen]
        k_SD = torch.cat([heads.k["slc"][b, span, g] for span in spans])
        v_SE = torch.cat([heads.v["slc"][b, span, g] for span in spans])
        return _attend(q_RD, k_SD, v_SE)[0]


def _attend(q_RD: Tensor, k_SD: Tensor, v_SE: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax attention of R queries over the given keys; zero when there is none. Also the probabilities."""
    p_RS = torch.softmax(q_RD @ k_SD.T * q_RD.shape[-1] ** -0.5, dim=-1)
    return p_RS @ v_SE, p_RS
