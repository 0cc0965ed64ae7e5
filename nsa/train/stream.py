"""Text that is read as it comes: FineWeb-Edu, or any dataset or folder of shards, streamed by ``datasets``.

The stream is read in ``train.shards`` disjoint parts, one per rank if nothing else is said, each part by one rank
alone. A row of the batch belongs to a part, whatever the number of ranks: the same parts give the same batches on
one rank as on two. Where each part stands is kept in the checkpoint; reading goes on at that very token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nsa.errors import ConfigError, DataFailed, DataUnavailable
from nsa.train.data import EndOfData
from nsa.train.documents import begun
from nsa.train.tokens import make_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from nsa.config import RunConfig
    from nsa.train.tokens import Tokenizer
    from nsa.train.world import World

FINEWEB_EDU = ("HuggingFaceFW/fineweb-edu", "sample-10BT")
"""Dataset and subset that ``train.data = 'fineweb-edu'`` stands for."""


def open_stream(config: RunConfig) -> Any:
    """The documents as a ``datasets.IterableDataset`` with a column ``text``; nothing is read of them yet.

    The same call for a dataset of the hub and for a folder of Parquet or JSONL shards on this machine.

    Raises:
        DataUnavailable: ``datasets`` is not installed, or there is no such dataset or folder within reach.
        ConfigError: it has no column ``text``.
    """
    try:
        import datasets
    except ImportError as error:
        raise DataUnavailable("train.data = 'fineweb-edu' needs datasets; pip install 'nsa-harness[data]'") from error
    name, subset = (config.train.data_path, None) if config.train.data_path else FINEWEB_EDU
    try:
        stream = datasets.load_dataset(name, subset, split="train", streaming=True)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise DataUnavailable(
            f"cannot open the dataset {name!r}: {reason}. train.data_path takes a dataset's name, or a folder of "
            ".parquet or .jsonl files"
        ) from error
    columns = stream.column_names
    if columns is not None and "text" not in columns:
        raise ConfigError(f"the dataset {name!r} has no column 'text'; it has {', '.join(columns)}")
    return stream.select_columns(["text"])


def is_remote(config: RunConfig) -> bool:
    """Whether the configuration names data that are not on this machine."""
    return config.train.data == "fineweb-edu" and not Path(config.train.data_path or "?").exists()


class Part:
    """One of the disjoint parts of a stream, cut into rows."""

    def __init__(self, documents: Any, tokenizer: Tokenizer, *, name: str, is_marked: bool = False) -> None:
        self.name, self._documents, self._encode, self._is_marked = name, documents, tokenizer.encode, is_marked
        self._iterator: Iterator[dict[str, str]] | None = None
        self._rest = torch.empty(0, dtype=torch.int32)
        self._has_text = False

    def rows(self, n_rows: int, length: int) -> Tensor:
        """The next ``n_rows`` rows of ``length`` ids; a row's last id is the next row's first.

        Raises:
            EndOfData: fewer are left.
            DataFailed: the part has no documents at all, or reading it failed.
        """
        stride = length - 1
        found, n_found, wanted = [self._rest], len(self._rest), n_rows * stride + 1
        while n_found < wanted:
            ids = self._encode(self._next(n_found, wanted))
            ids = begun(ids) if self._is_marked else ids
            found.append(ids)
            n_found += len(ids)
        ids = torch.cat(found)
        self._rest = ids[n_rows * stride :].clone()
        return ids[:wanted].unfold(0, length, stride).long()

    def position(self) -> tuple[dict[str, Any], Tensor]:
        """Where reading goes on: the documents' own state, and what is left of the last one."""
        return self._documents.state_dict(), self._rest

    def go_to(self, position: tuple[dict[str, Any], Tensor]) -> None:
        """Go on reading from a ``position``; before the first row only."""
        state, self._rest = position
        self._documents.load_state_dict(state)
        self._has_text = True

    def _next(self, n_found: int, wanted: int) -> str:
        if self._iterator is None:
            self._iterator = iter(self._documents)
        try:
            text = next(self._iterator)["text"]
        except StopIteration:
            if not self._has_text:
                raise DataFailed(f"{self.name} has no documents; give more shards, or use fewer processes") from None
            raise EndOfData(f"{self.name} has {n_found} tokens left, and a step needs {wanted}") from None
        except Exception as error:  # whatever a reader of files or of the network may raise
            raise DataFailed(f"reading {self.name} failed: {type(error).__name__}: {error}") from error
        self._has_text = True
        return text


class Stream:
    """This rank's parts; every call gives the rows of the next step."""

    def __init__(self, config: RunConfig, world: World | None) -> None:
        train, (rank, size) = config.train, (world.rank, world.size) if world else (0, 1)
        self.n_parts = train.shards or size
        if self.n_parts % size or train.batch_size % self.n_parts:
            raise ConfigError(
                f"train.shards = {self.n_parts} does not fit {size} processes and train.batch_size = "
                f"{train.batch_size}: every process reads the same number of parts, and every part fills the same "
                "number of rows"
            )
        self.n_micro, self.rows_per_part = train.accumulate, train.batch_size // self.n_parts
        self.length = train.seq_len + 1
        documents, tokenizer = open_stream(config), make_tokenizer(config, is_remote=is_remote(config))
        from datasets.distributed import split_dataset_by_node  # there, since the stream is open

        per_rank = self.n_parts // size
        self.parts = {
            number: Part(
                split_dataset_by_node(documents, rank=number, world_size=self.n_parts),
                tokenizer,
                name=f"part {number + 1} of {self.n_parts} of the data",
                is_marked=train.documents,
            )
            for number in range(rank * per_rank, (rank + 1) * per_rank)
        }

    def micro_batches(self) -> list[Tensor]:
        """The next step's ids_BT, one per micro-batch."""
        rows = [part.rows(self.n_micro * self.rows_per_part, self.length) for part in self.parts.values()]
        by_micro = zip(*(ids.chunk(self.n_micro) for ids in rows), strict=True)
        return [torch.cat(ids) for ids in by_micro]

    def position(self) -> dict[int, Any]:
        """Where every part of this rank stands."""
        return {number: part.position() for number, part in self.parts.items()}

    def go_to(self, written: dict[str, str]) -> None:
        """Go on from where a run stood, as ``written`` has it."""
        if len(written) != self.n_parts:
            raise ConfigError(
                f"the stream was read in {len(written)} parts and is read in {self.n_parts} now: text would be read "
                f"twice or never. Set train.shards = {len(written)}"
            )
        for number, part in self.parts.items():
            found = json.loads(written[str(number)])
            part.go_to((found["documents"], torch.tensor(found["rest"], dtype=torch.int32)))


def as_text(position: dict[int, Any]) -> dict[str, str]:
    """A ``Stream.position`` as it is kept in a checkpoint, part by part."""
    return {
        str(number): json.dumps({"documents": state, "rest": rest.tolist()})
        for number, (state, rest) in position.items()
    }
