"""What the model reads: real text that every machine has, or noise.

The text is the source of Python's own standard library: the top-level ``*.py`` files of the running
interpreter, in the order of their names, joined. No download, no tokenizer: one byte is one token.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from nsa.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from nsa.config import RunConfig

BYTE_VALUES = 256


def stdlib_text() -> Tensor:
    """The standard library's top-level sources as one uint8 tensor (a few million bytes).

    Raises:
        ConfigError: this interpreter ships no sources.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    text = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    if not text:
        raise ConfigError(f"no Python sources in {folder}; use train.data = 'synthetic'")
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def batches(config: RunConfig) -> Callable[[int], Tensor]:
    """How to fetch the batch of a step: ids_BT with one token more than ``seq_len``, inputs and targets in one.

    The batch of a step depends on the seed and the step alone, so a run can be continued anywhere.
    """
    train, vocab = config.train, config.model.vocab
    shape = (train.batch_size, train.seq_len + 1)
    if train.data == "synthetic":
        return lambda step: torch.randint(vocab, shape, generator=_generator(train.seed, step))
    if vocab < BYTE_VALUES:
        raise ConfigError(
            f"model.vocab = {vocab} is less than the 256 byte values; use 256, or train.data = 'synthetic'"
        )
    text = stdlib_text()
    if len(text) < shape[1]:
        raise ConfigError(f"train.seq_len = {train.seq_len} is longer than the text ({len(text)} bytes)")

    def batch(step: int) -> Tensor:
        starts = torch.randint(len(text) - shape[1] + 1, (shape[0],), generator=_generator(train.seed, step))
        return torch.stack([text[start : start + shape[1]] for start in starts.tolist()]).long()

    return batch


def _generator(seed: int, step: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 1_000_003 + step)
