"""Shapes on which every backend is compared with the reference: edges of l, d, l', w and n l', and odd sizes.

A new backend is measured on all of them; a new shape is measured on every backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from nsa.blocks import BlockLayout
from nsa.kernels.registry import Site
from nsa.kernels.scores.reference import select


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One shape; letters as in the operators' contracts.

    Attributes:
        offset: position of the first query; there are offset + T keys.
        cu: document boundaries of a packed row, or None.
    """

    name: str
    T: int
    B: int = 1
    H: int = 4
    G: int = 2
    D: int = 8
    E: int = 8
    l: int = 8  # noqa: E741 - the paper's letter
    d: int = 4
    l_slc: int = 8
    n: int = 4
    w: int = 8
    offset: int = 0
    cu: tuple[int, ...] | None = None

    @property
    def layout(self) -> BlockLayout:
        """The block geometry."""
        return BlockLayout(l=self.l, d=self.d, l_slc=self.l_slc, n=self.n, w=self.w)

    @property
    def S(self) -> int:
        """Keys."""
        return self.offset + self.T

    @property
    def C(self) -> int:
        """Compression-block slots."""
        return self.S // self.d if self.cu is not None else self.layout.n_cmp(self.S)

    @property
    def n_blocks(self) -> int:
        """Compression blocks that exist; across documents there are more slots than blocks."""
        return self.C if self.cu is None else sum(self.layout.n_cmp(b - a) for a, b in pairwise(self.cu))

    def site(self, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Site:
        """Where the registry would resolve this case."""
        return Site(
            device=torch.device(device),
            dtype=dtype,
            seq_len=self.T,
            n_heads=self.H,
            n_kv_groups=self.G,
            d_k=self.D,
            d_v=self.E,
            layout=self.layout,
        )


CASES = [
    Case(name="plain", T=48),
    Case(name="one-token", T=1),
    Case(name="shorter-than-l", T=7),
    Case(name="exactly-l", T=8),
    Case(name="one-past-l", T=9),
    Case(name="ragged-prime", T=53, B=2),
    Case(name="mha-one-head-per-group", T=50, H=2, G=2),
    Case(name="mqa-group-of-6", T=50, H=6, G=1),
    Case(name="wide-keys", T=30, D=16, E=8),
    Case(name="wide-values", T=30, D=8, E=24),
    Case(name="heads-of-32", T=70, D=32, E=32, w=20),
    Case(name="heads-of-32-in-documents", T=70, D=32, E=32, w=20, cu=(0, 9, 40, 70)),
    Case(name="long-rows-of-64", T=150, H=2, G=1, D=64, E=64, w=40),
    Case(name="l-above-l_slc", T=40, l=16, d=4, l_slc=8),
    Case(name="l-equals-d-equals-l_slc", T=40, l=8, d=8, l_slc=8),
    Case(name="l-and-d-are-1", T=20, l=1, d=1, l_slc=4),
    Case(name="all-blocks-selected", T=24, n=5),
    Case(name="just-past-n-blocks", T=33),
    Case(name="window-of-1", T=20, w=1),
    Case(name="window-beyond-sequence", T=20, w=64),
    Case(name="window-not-a-tile", T=45, w=13),
    Case(name="behind-a-cache", T=5, offset=41),
    Case(name="one-token-behind-a-cache", T=1, offset=56, B=2),
    Case(name="documents", T=60, cu=(0, 13, 60)),
    Case(name="documents-of-0-1-and-short", T=50, cu=(0, 0, 1, 6, 6, 50, 50)),
    Case(name="documents-at-block-edges", T=64, cu=(0, 8, 16, 64)),
]
BY_NAME = {case.name: case for case in CASES}


def tensors(
    case: Case,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
    is_contiguous: bool = True,
) -> dict[str, Tensor]:
    """Random q, k, v, kc and vc of one case, with gradients on."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        x = torch.randn(*shape, generator=generator, dtype=torch.float64).to(device, dtype)
        if not is_contiguous:
            x = torch.stack((x, x), -1)[..., 0]
        return x.requires_grad_()

    return {
        "q": draw(case.B, case.T, case.H, case.D),
        "k": draw(case.B, case.S, case.G, case.D),
        "v": draw(case.B, case.S, case.G, case.E),
        "kc": draw(case.B, case.C, case.G, case.D),
        "vc": draw(case.B, case.C, case.G, case.E),
    }


def boundaries(case: Case, *, device: str = "cpu") -> Tensor | None:
    """The case's document boundaries as the operators take them."""
    return None if case.cu is None else torch.tensor(case.cu, dtype=torch.int32, device=device)


def random_index(case: Case, *, device: str = "cpu", seed: int = 0) -> Tensor:
    """A legal selection per query and group: the reference's own, from random scores."""
    x = tensors(case, dtype=torch.float64, seed=seed + 100)
    index = select(x["q"], x["kc"], x["q"][..., 0], case.layout, offset=case.offset, cu_seqlens=boundaries(case))
    return index.to(device)
