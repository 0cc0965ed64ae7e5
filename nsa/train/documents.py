"""Where documents begin in the ids that a run reads, from the source to the model.

The first id of a document is stored as its complement, ``~id`` (below zero), so that whatever cuts, deals out, joins or
moves ids keeps the boundaries with them, and rows of a run without ``train.documents`` are as they always were.
Shape letters: B rows, T tokens of a row that are read, and one more that is only predicted; S = B T.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A micro-batch as one row: its documents one behind the other, and the boundaries as the host knows them.

    Attributes:
        ids_1S: what is read.
        targets_S: what follows each of them. Behind a document's end that is the next one's beginning: its end token
            predicts it from the document that it ends, so every place counts, and ranks weigh the same.
        cu_seqlens: 0, the end of every document, S. A row begins a document, whether or not it is cut.
    """

    ids_1S: Tensor
    targets_S: Tensor
    cu_seqlens: tuple[int, ...]

    def to(self, device: str) -> Packed:
        """The same with its ids on ``device``; a GPU fetches them itself while the host goes on."""
        if torch.device(device).type == "cpu":
            return self
        ids_1S, targets_S = (x.pin_memory().to(device, non_blocking=True) for x in (self.ids_1S, self.targets_S))
        return Packed(ids_1S=ids_1S, targets_S=targets_S, cu_seqlens=self.cu_seqlens)


def begun(ids_T: Tensor) -> Tensor:
    """A document's ids with its first one marked."""
    if not len(ids_T):
        return ids_T
    return torch.cat((~ids_T[:1], ids_T[1:]))


def joined(documents: list[Tensor]) -> Tensor:
    """Documents one behind the other, int32, each marked."""
    return torch.cat([begun(ids_T.to(torch.int32)) for ids_T in documents])


def packed(ids_BT: Tensor) -> Packed:
    """Rows of T + 1 ids on the host, with marks, as one row of B T tokens."""
    is_first_BT = ids_BT < 0
    plain_BT = torch.where(is_first_BT, ~ids_BT, ids_BT)
    is_first_BT[:, 0] = True
    starts = is_first_BT[:, :-1].flatten().nonzero()[:, 0].tolist()
    ids_1S = plain_BT[:, :-1].reshape(1, -1)
    return Packed(ids_1S=ids_1S, targets_S=plain_BT[:, 1:].flatten(), cu_seqlens=(*starts, ids_1S.shape[1]))
