"""Tokenizers: one byte is one token, or GPT-2's by tiktoken.

GPT-2's merges are read from ``train.tokenizer_path``, a file of ranks in tiktoken's format (a base64 word and its
rank per line; OpenAI's ``r50k_base.tiktoken`` is GPT-2's). Without a path tiktoken fetches them, which is allowed
only where the configuration reads remote data anyway.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from nsa.errors import ConfigError, DataUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from nsa.config import RunConfig

GPT2_WORDS = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
"""How GPT-2 cuts a text into words before it merges bytes (tiktoken_ext.openai_public.gpt2)."""

END_OF_TEXT = "<|endoftext|>"
GPT2_END = 50256
"""Its id among GPT-2's own tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """Turns a document into ids.

    Attributes:
        n_vocab: how many ids there are.
        encode: a document's ids, 1-D int32, with the token that ends a document.
        begin: the ids of a text that goes on, 1-D int32.
        decode: the text of 1-D ids; what is no text becomes a replacement character.
        end: the token that ends a document; None where it also stands within one.
    """

    n_vocab: int
    encode: Callable[[str], Tensor]
    begin: Callable[[str], Tensor]
    decode: Callable[[Tensor], str]
    end: int | None = None


def make_tokenizer(config: RunConfig, *, is_remote: bool) -> Tokenizer:
    """The tokenizer that ``train.tokenizer`` names.

    Raises:
        ConfigError: tiktoken or its files are missing, or the model's vocabulary is too small.
        DataUnavailable: its files would have to be fetched and cannot be.
    """
    made = _bytes() if config.train.tokenizer == "byte" else _gpt2(config.train.tokenizer_path, is_remote=is_remote)
    if config.model.vocab < made.n_vocab:
        what = "the 256 byte values" if config.train.tokenizer == "byte" else f"the {made.n_vocab} tokens of gpt2"
        raise ConfigError(
            f"model.vocab = {config.model.vocab} is less than {what}; use {made.n_vocab}, or train.data = 'synthetic'"
        )
    return made


def _bytes() -> Tokenizer:
    def encode(text: str) -> Tensor:
        return torch.frombuffer(bytearray(text.encode() + b"\n"), dtype=torch.uint8).to(torch.int32)

    def begin(text: str) -> Tensor:
        return torch.tensor(list(text.encode()), dtype=torch.int32)

    def decode(ids_T: Tensor) -> str:
        return b"".join(bytes([i]) if i < 256 else b"\xff" for i in ids_T.tolist()).decode(errors="replace")

    return Tokenizer(n_vocab=256, encode=encode, begin=begin, decode=decode)


def _gpt2(path: str, *, is_remote: bool) -> Tokenizer:
    try:
        import tiktoken
    except ImportError as error:
        raise ConfigError("train.tokenizer = 'gpt2' needs tiktoken; pip install 'nsa-harness[data]'") from error
    if path:
        ranks = _ranks(Path(path))
        encoding = tiktoken.Encoding(
            "gpt2", pat_str=GPT2_WORDS, mergeable_ranks=ranks, special_tokens={END_OF_TEXT: len(ranks)}
        )
    elif is_remote:
        try:
            encoding = tiktoken.get_encoding("gpt2")
        except OSError as error:
            raise DataUnavailable(
                f"train.tokenizer = 'gpt2' cannot fetch its merges: {error}; give a file of them, train.tokenizer_path"
            ) from error
    else:
        raise ConfigError(
            "train.tokenizer = 'gpt2' would fetch its merges from the network, and the data are on this machine; set "
            "train.tokenizer_path to a file of ranks such as r50k_base.tiktoken"
        )

    def encode(text: str) -> Tensor:
        return torch.tensor([*encoding.encode_ordinary(text), encoding.eot_token], dtype=torch.int32)

    def begin(text: str) -> Tensor:
        return torch.tensor(encoding.encode_ordinary(text), dtype=torch.int32)

    def decode(ids_T: Tensor) -> str:
        # A model may have more ids than the tokenizer.
        return encoding.decode([i for i in ids_T.tolist() if i < encoding.n_vocab and i != encoding.eot_token])

    return Tokenizer(n_vocab=encoding.n_vocab, encode=encode, begin=begin, decode=decode, end=encoding.eot_token)


def _ranks(path: Path) -> dict[bytes, int]:
    """Byte strings and their ranks. tiktoken's own reader would keep a copy and not see that the file has changed."""
    ranks: dict[bytes, int] = {}
    try:
        for line in path.read_bytes().splitlines():
            word, rank = line.split()
            ranks[base64.b64decode(word, validate=True)] = int(rank)
    except OSError as error:
        raise ConfigError(f"cannot read train.tokenizer_path = {str(path)!r}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}:{len(ranks) + 1} is no base64 word and its rank") from error
    return ranks
