"""What the model reads: real text that every machine has, a text of one's own, noise, or a stream.

The text that every machine has is the source of Python's own standard library: the top-level ``*.py`` files of the
running interpreter, in the order of their names, joined; its packages are what ``val.csv`` is measured on. No
download, no tokenizer: one byte is one token. A stream is read by ``nsa.train.stream``.
"""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from nsa.errors import ConfigError
from nsa.train.documents import joined
from nsa.train.tokens import make_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from nsa.config import RunConfig
    from nsa.train.world import World

SUFFIXES = (".jsonl", ".md", ".py", ".txt")
"""Files that are read from a folder of text."""


HELD_OUT = "[a-k]*/*.py"
"""Files of the standard library's packages (asyncio to json): not among those that are trained on."""


class EndOfData(Exception):
    """The text has no more whole steps; the run ends together, on all ranks."""


def stdlib_text(pattern: str = "*.py") -> Tensor:
    """The standard library's top-level sources as one uint8 tensor (a few million bytes).

    Args:
        pattern: which files; ``HELD_OUT`` for those that no run is trained on.

    Raises:
        ConfigError: this interpreter ships no sources.
    """
    return _as_ids(b"".join(_stdlib_documents(pattern)))


def _stdlib_documents(pattern: str) -> list[bytes]:
    folder = Path(sysconfig.get_path("stdlib"))
    documents = [path.read_bytes() for path in sorted(folder.glob(pattern))]
    if not any(documents):
        raise ConfigError(f"no Python sources in {folder}; use train.data = 'synthetic'")
    return documents


def _as_ids(text: bytes) -> Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def local_text(path: str) -> Tensor:
    """A text file, a JSONL file's ``text`` fields one after another, or a folder of such files, as uint8.

    Raises:
        ConfigError: nothing readable there, or a JSONL line without a text; the message names file and line.
    """
    return _as_ids(b"".join(_local_documents(path)))


def _local_documents(path: str) -> list[bytes]:
    """Every file, or every text of a JSONL file, in the order of their names."""
    root = Path(path)
    if not path or not root.exists():
        raise ConfigError(f"train.data_path = {path!r} does not exist; train.data = 'local' needs a file or a folder")
    found = sorted(p for p in root.rglob("*") if p.suffix in SUFFIXES) if root.is_dir() else [root]
    try:
        documents = [text for file in found for text in _documents_of(file)]
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from error
    if not any(documents):
        raise ConfigError(f"no text in train.data_path = {path!r}; it takes {', '.join(SUFFIXES)}")
    return documents


def _documents_of(file: Path) -> list[bytes]:
    if file.suffix != ".jsonl":
        return [file.read_bytes()]
    texts: list[str] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            texts.append(json.loads(line)["text"] + "\n")
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{file}:{number} is no JSON object with a text in its field 'text'") from error
    return [text.encode() for text in texts]


def batches(config: RunConfig, world: World | None = None) -> Callable[[int], list[Tensor]]:
    """How to fetch a step's micro-batches: ids_BT each, with one token more than ``seq_len`` for the targets.

    The sequences of a step depend on the seed and the step alone, and ranks deal them out: a run can be continued
    anywhere, by any number of processes.

    Raises:
        ConfigError: the data does not fit the configuration.
        EndOfData: on fetching, a step lies behind the end of the text.
    """
    rows = _rows(config)
    n_micro, rank, size = config.train.accumulate, *((world.rank, world.size) if world else (0, 1))

    def fetch(step: int) -> list[Tensor]:
        ids_NT = rows(step)
        return [micro.chunk(size)[rank] for micro in ids_NT.chunk(n_micro)]

    return fetch


def held_out(config: RunConfig, world: World | None = None) -> Callable[[int], list[Tensor]]:
    """How to fetch what no run is trained on: other text or other noise, one micro-batch at a time.

    Raises:
        ConfigError: ``train.val_path`` is needed and not given.
        EndOfData: on fetching, as ``batches`` does.
    """
    other = _other(config)
    rows = _rows(other, stdlib=HELD_OUT)
    return lambda number: [rows(number).chunk(world.size if world else 1)[world.rank if world else 0]]


def _other(config: RunConfig) -> RunConfig:
    """The configuration of data beside those that are trained on, in the same shape."""
    train = config.train
    if train.val_path:
        return config.with_values({"train.data": "local", "train.data_path": train.val_path, "train.accumulate": 1})
    if train.data == "synthetic":
        return config.with_values({"train.seed": train.seed + 1, "train.accumulate": 1})
    if train.data == "bytes":
        return config.with_value("train.accumulate", 1)
    raise ConfigError(
        f"train.eval_every = {train.eval_every} with train.data = {train.data!r} needs train.val_path, a text that is "
        "not trained on; set it, or train.eval_every = 0"
    )


def _rows(config: RunConfig, *, stdlib: str = "*.py") -> Callable[[int], Tensor]:
    """All sequences of a step, of every micro-batch and rank; of the standard library, the files ``stdlib``."""
    train, vocab = config.train, config.model.vocab
    shape = (train.batch_size * train.accumulate, train.seq_len + 1)
    if train.data == "synthetic":
        return lambda step: torch.randint(vocab, shape, generator=_generator(train.seed, step))
    text = _text(config, stdlib)
    if len(text) < shape[1]:
        raise ConfigError(f"train.seq_len = {train.seq_len} is longer than the text ({len(text)} tokens)")
    if train.data == "local":
        return lambda step: _in_order(text, shape, step)

    def drawn(step: int) -> Tensor:
        starts = torch.randint(len(text) - shape[1] + 1, (shape[0],), generator=_generator(train.seed, step))
        return torch.stack([text[start : start + shape[1]] for start in starts.tolist()]).long()

    return drawn


def _text(config: RunConfig, stdlib: str) -> Tensor:
    """The whole text as ids: uint8 for bytes, int32 where documents are marked or made of other tokens."""
    train, tokenizer = config.train, make_tokenizer(config, is_remote=False)
    if train.documents:
        documents = _local_documents(train.data_path) if train.data == "local" else _stdlib_documents(stdlib)
        if train.tokenizer == "byte":
            return joined([_as_ids(text) for text in documents if text])
        return joined([tokenizer.encode(text.decode("utf-8", errors="replace")) for text in documents if text])
    text = local_text(train.data_path) if train.data == "local" else stdlib_text(stdlib)
    if train.tokenizer == "byte":
        return text
    return tokenizer.encode(bytes(text.numpy()).decode("utf-8", errors="replace"))


def _in_order(text: Tensor, shape: tuple[int, int], step: int) -> Tensor:
    """The step's part of the text, read once from front to back; what does not fill a step is left over."""
    n_rows, length = shape
    stride = length - 1
    first = step * n_rows * stride
    last = first + n_rows * stride + 1
    if last > len(text):
        raise EndOfData(f"step {step} needs tokens {first} to {last} of a text of {len(text)}")
    return text[first:last].unfold(0, length, stride).long()


def _generator(seed: int, step: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 1_000_003 + step)
