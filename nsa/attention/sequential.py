"""The same attention as a Python loop over every token: right numbers, cost linear in layers times tokens.

This is how nsa-vibe, the system of the original incident reports, ran its default prefill: about 150 autograd
nodes and 15 host synchronisations per token and layer. It is kept as a subject for diagnosis: a healthy run
that is far too slow. Never a fallback; choose it with ``model.attention = "legacy-sequential"``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nsa.attention.layer import Heads, NsaAttention
from nsa.errors import ConfigError


class SequentialAttention(NsaAttention):
    """Same parameters and same result as ``NsaAttention``, one token at a time."""

    def forward(self, x_BTX: Tensor, *, cu_seqlens: Tensor | None = None) -> Tensor:
        """Attend token by token; packed documents and isolated branches are not supported."""
        if cu_seqlens is not None or self.config.branches != "all":
            raise ConfigError("legacy-sequential attention takes one document and all branches; use attention = 'nsa'")
        gate_BTHC = self.gate(x_BTX)
        heads = self.project(x_BTX)
        rows = [
            torch.stack([self._token(heads, gate_BTHC, b, t) for t in range(x_BTX.shape[1])])
            for b in range(x_BTX.shape[0])
        ]
        return self.o_proj(torch.stack(rows).flatten(2))

    def _token(self, heads: Heads, gate_BTHC: Tensor, b: int, t: int) -> Tensor:
        """Output [H, E] of one token: every group on its own, then the heads side by side."""
        group = self.config.n_heads // self.config.n_kv_groups
        parts = []
        for g in range(self.config.n_kv_groups):
            q_RD = heads.q_BTHD[b, t, g * group : (g + 1) * group]
            cmp_RE, p_RC = self._compressed(heads, q_RD, b, t, g)
            slc_RE = self._selected_blocks(heads, q_RD, p_RC, b, t, g)
            start = max(0, t + 1 - self.layout.w)
            win_RE = _attend(q_RD, heads.k["win"][b, start : t + 1, g], heads.v["win"][b, start : t + 1, g])[0]
            g_R3 = gate_BTHC[b, t, g * group : (g + 1) * group]
            parts.append(cmp_RE * g_R3[:, 0:1] + slc_RE * g_R3[:, 1:2] + win_RE * g_R3[:, 2:3])
        return torch.cat(parts)

    def _compressed(self, heads: Heads, q_RD: Tensor, b: int, t: int, g: int) -> tuple[Tensor, Tensor]:
        """Compressed branch of one token and group, with every visible block compressed anew."""
        seen_k, seen_v = heads.k["cmp"][b : b + 1, : t + 1, g : g + 1], heads.v["cmp"][b : b + 1, : t + 1, g : g + 1]
        kc_CD = self.compressed_keys(seen_k)[0, :, 0]
        vc_CE = self.compressed_values(seen_v)[0, :, 0]
        return _attend(q_RD, kc_CD, vc_CE)

    def _selected_blocks(self, heads: Heads, q_RD: Tensor, p_RC: Tensor, b: int, t: int, g: int) -> Tensor:
        """Selected branch of one token and group; reads every block number back to the host."""
        layout = self.layout
        score_J = self._importance(p_RC, t)
        forced = layout.forced(t)
        free = [j for j in range(layout.slc_of(t) + 1) if j not in forced]
        free.sort(key=lambda j: -score_J[j].item())
        chosen = sorted([*forced, *free[: layout.n - len(forced)]])
        spans = [slice(j * layout.l_slc, min((j + 1) * layout.l_slc, t + 1)) for j in chosen]
        k_SD = torch.cat([heads.k["slc"][b, span, g] for span in spans])
        v_SE = torch.cat([heads.v["slc"][b, span, g] for span in spans])
        return _attend(q_RD, k_SD, v_SE)[0]

    @torch.no_grad()
    def _importance(self, p_RC: Tensor, t: int) -> Tensor:
        """Eq. 9 and Eq. 10 for one token and group, block by block."""
        layout = self.layout
        p_C = p_RC.sum(0)
        per_block, before = layout.l_slc // layout.d, layout.l // layout.d - 1
        score_J = p_C.new_zeros(layout.slc_of(t) + 1)
        for j in range(len(score_J)):
            for i in range(max(0, j * per_block - before), min(len(p_C), (j + 1) * per_block)):
                score_J[j] += p_C[i] * layout.overlap(i, j)
        return score_J


def _attend(q_RD: Tensor, k_SD: Tensor, v_SE: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax attention of R queries over the given keys; zero when there is none. Also the probabilities."""
    p_RS = torch.softmax(q_RD @ k_SD.T * q_RD.shape[-1] ** -0.5, dim=-1)
    return p_RS @ v_SE, p_RS
