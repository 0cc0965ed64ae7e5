"""The language model for Hugging Face's transformers: padding, cache, ``generate``, ``Trainer``, saving and loading.

Masked tokens are not there: a row with padding, on whichever side, gives what it gives alone. Without a cache real
tokens are moved to the front of their row, where causal attention never sees what follows; with one, rows of equal
length share a cache and are computed together.
Shape letters: B rows, T tokens handed in, V token ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils.generic import can_return_tuple

from nsa.attention.cache import CacheError
from nsa.config import RunConfig
from nsa.errors import InputError
from nsa.hf.configuration import NSAConfig
from nsa.kernels.registry import resolve_all
from nsa.model.build import site_of
from nsa.model.transformer import Decoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nsa.attention.cache import DecoderCache


class NSACache:
    """What ``generate`` remembers: one ``DecoderCache`` for all rows that have as many real tokens.

    A call is taken in by all rows or, after an exception, by none.
    """

    is_compileable = False

    def __init__(self, decoder: Decoder) -> None:
        """Make an empty one for a model's decoder."""
        self._decoder = decoder
        self._groups: list[tuple[list[int], DecoderCache]] = []
        self._n_seen = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens handed in so far, padding included; the same in every layer."""
        return self._n_seen

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let row ``b`` continue what row ``beam_idx[b]`` was; CacheError between rows of different lengths."""
        source = beam_idx.tolist()
        for rows, cache in self._groups:
            place = {row: i for i, row in enumerate(rows)}
            if any(source[row] not in place for row in rows):
                raise CacheError("a row cannot continue one of another length; reorder within the beams of a prompt")
            cache.reorder(torch.tensor([place[source[row]] for row in rows], device=beam_idx.device))

    def extend(self, ids_BT: Tensor, mask_BT: Tensor | None, n_last: int) -> Tensor:
        """Take in tokens; returns the logits [B, n_last, V] of the last places, zero where nothing real stands.

        Raises:
            InputError: a prompt that ends in padding, or padding behind the first call.
            CacheError: another number of rows than before.
        """
        B, T = ids_BT.shape
        groups = self._groups
        if not groups:
            if mask_BT is not None and not mask_BT[:, -1].all():
                raise InputError(
                    "a prompt ends in padding; pad on the left, so that the last place predicts the next token"
                )
            lengths = [T] * B if mask_BT is None else mask_BT.sum(1).tolist()
            by_length = {length: [b for b in range(B) if lengths[b] == length] for length in dict.fromkeys(lengths)}
            groups = [(rows, self._decoder.new_cache()) for rows in by_length.values()] or [
                ([], self._decoder.new_cache())
            ]
        elif sum(len(rows) for rows, _ in groups) != B:
            raise CacheError(
                f"{B} rows behind a cache of {sum(len(rows) for rows, _ in groups)}; use one cache per batch"
            )
        elif mask_BT is not None and T > 1 and not mask_BT.all():
            raise InputError("padding behind the first call of a cache; hand in real tokens only")
        before = [cache.state() for _, cache in groups]
        try:
            logits = self._run(groups, ids_BT, mask_BT if not self._groups else None, n_last)
            self._groups, self._n_seen = groups, self._n_seen + T
        except BaseException:
            for (_, cache), state in zip(groups, before, strict=True):
                cache.restore(state)
            raise
        return logits

    def _run(
        self, groups: list[tuple[list[int], DecoderCache]], ids_BT: Tensor, mask_BT: Tensor | None, n_last: int
    ) -> Tensor:
        if len(groups) == 1 and mask_BT is None:
            return self._decoder(ids_BT, cache=groups[0][1], n_last=n_last)
        mask_BT = torch.ones_like(ids_BT, dtype=torch.bool) if mask_BT is None else mask_BT
        asked_BK = mask_BT[:, max(0, ids_BT.shape[1] - n_last) :]
        logits_BKV = torch.zeros(())
        for rows, cache in groups:
            # The real tokens among the last places are the last real tokens.
            n_real_b = asked_BK[rows].sum(1).tolist()
            real_bL = ids_BT[rows][mask_BT[rows]].view(len(rows), -1)
            out_bMV = self._decoder(real_bL, cache=cache, n_last=max(n_real_b))
            if logits_BKV.ndim == 0:
                logits_BKV = out_bMV.new_zeros(*asked_BK.shape, out_bMV.shape[2])
            for i, row in enumerate(rows):
                logits_BKV[row, asked_BK[row]] = out_bMV[i, out_bMV.shape[1] - n_real_b[i] :]
        return logits_BKV


class NSAForCausalLM(PreTrainedModel, GenerationMixin):
    """A decoder with Native Sparse Attention and a head that predicts the next token.

    ``model`` is an ``nsa.model.transformer.Decoder``. Kernels are chosen where the tensors are, so ``device_map``,
    ``dtype`` and ``.to()`` work as with any model of transformers.
    """

    config_class = NSAConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True
    _is_stateful = True  # a cache cannot be cut back: no assisted generation
    _no_split_modules = ["Block"]  # noqa: RUF012 - transformers' own convention
    _tied_weights_keys = {"model.lm_head.weight": "model.embed.weight"}  # noqa: RUF012 - transformers' own convention

    def __init__(self, config: NSAConfig) -> None:
        super().__init__(config)
        run = RunConfig(model=config.sizes)
        kernels = resolve_all(run.kernels, site_of(run)) if config.attention == "nsa" else {}
        self.model = Decoder(run.model, kernels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        past_key_values: NSACache | None = None,
        cache: NSACache | None = None,
        labels: Tensor | None = None,
        use_cache: bool = False,
        logits_to_keep: int = 0,
        cu_seqlens: Tensor | Sequence[int] | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> CausalLMOutputWithPast:
        """Logits for the token after each of ``input_ids``, and the loss where there are labels.

        Args:
            input_ids: int64 [B, T]; with a cache those that follow what it holds.
            attention_mask: [B, T], or longer for the tokens in the cache too; 0 where no token is. Prompts of unequal
                length are padded on the left for ``generate``, on either side otherwise.
            past_key_values: from an earlier call; takes in the new tokens.
            cache: the same, as transformers calls it from 5.24 on.
            labels: int64 [B, T], input_ids themselves; -100 is not predicted, nor is padding, nor a row's first token.
            use_cache: return a cache to go on with.
            logits_to_keep: logits of so many last places only; 0 for all.
            cu_seqlens: boundaries of N documents packed in one row, 0 to T: N + 1 numbers, or int32 or int64 [N + 1];
                not with mask or cache.
            num_items_in_batch: what the loss is divided by, as ``Trainer`` says; the labels counted here if None.

        Returns:
            loss (or None), logits [B, T or logits_to_keep, vocab_size], past_key_values (or None).

        Raises:
            InputError: shapes or boundaries that do not fit, or padding where ``NSACache.extend`` takes none.
            CacheError: a cache of another batch.
        """
        mask_BT = self._mask_of(input_ids, attention_mask, cu_seqlens)
        past_key_values = cache if past_key_values is None else past_key_values
        if use_cache or past_key_values is not None:
            if cu_seqlens is not None:
                raise InputError("a cache continues whole rows: hand in either cu_seqlens or a cache")
            past_key_values = NSACache(self.model) if past_key_values is None else past_key_values
            logits = past_key_values.extend(input_ids, mask_BT, logits_to_keep or max(1, input_ids.shape[1]))
        elif mask_BT is None:
            logits = self.model(input_ids, cu_seqlens=cu_seqlens, n_last=logits_to_keep or None)
        else:
            order_BT = (~mask_BT).to(torch.uint8).argsort(dim=1, stable=True)
            hidden_BTX = self.model.hidden(input_ids.gather(1, order_BT))
            place_BTX = order_BT.argsort(dim=1)[..., None].expand_as(hidden_BTX)
            logits = self.model.lm_head(hidden_BTX.gather(1, place_BTX)[:, -logits_to_keep:])
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits,
                labels=_predicted(labels, mask_BT, cu_seqlens),
                vocab_size=self.config.vocab_size,
                num_items_in_batch=num_items_in_batch,
            )
        # transformers takes any object for a cache; its annotation names its own.
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=past_key_values)  # pyrefly: ignore[bad-argument-type]

    def _mask_of(self, ids_BT: Tensor, attention_mask: Tensor | None, cu_seqlens: object) -> Tensor | None:
        """Where the tokens handed in are real; None where all are."""
        if attention_mask is None:
            return None
        if cu_seqlens is not None:
            raise InputError("packed documents have no padding: hand in either cu_seqlens or attention_mask")
        B, T = ids_BT.shape
        if attention_mask.ndim != 2 or attention_mask.shape[0] != B or attention_mask.shape[1] < T:
            raise InputError(
                f"attention_mask has shape {tuple(attention_mask.shape)}; it needs {(B, T)}, or the cache's too"
            )
        return attention_mask[:, attention_mask.shape[1] - T :].bool()

    def get_input_embeddings(self) -> nn.Module:
        """The table of token vectors."""
        return self.model.embed

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Use another table."""
        self.model.embed = value  # an Embedding, as transformers gives

    def get_output_embeddings(self) -> nn.Module:
        """The head."""
        return self.model.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Use another head."""
        self.model.lm_head = new_embeddings  # a Linear

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # forward makes an NSACache

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, Decoder):
            module.reset_parameters()

    # transformers calls it with its own names; which function recomputes, and how many blocks at once, is ours.
    def _set_gradient_checkpointing(self, enable: bool = True, *_: Any, **__: Any) -> None:  # noqa: FBT001, FBT002
        self.model.has_checkpointing = enable


def _predicted(labels_BT: Tensor, mask_BT: Tensor | None, cu_seqlens: Tensor | Sequence[int] | None) -> Tensor:
    """The labels without padding and without tokens that have no token before them to predict them."""
    if mask_BT is not None:
        has_one_before_BT = torch.nn.functional.pad(mask_BT[:, :-1], (1, 0))
        labels_BT = labels_BT.masked_fill(~(mask_BT & has_one_before_BT), -100)
    if cu_seqlens is not None:
        first_N = torch.as_tensor(cu_seqlens[:-1], device=labels_BT.device).long()
        is_first_T = torch.zeros(labels_BT.shape[1] + 1, dtype=torch.bool, device=labels_BT.device)
        labels_BT = labels_BT.masked_fill(is_first_T.index_fill(0, first_N, value=True)[:-1], -100)
    return labels_BT


AutoModelForCausalLM.register(NSAConfig, NSAForCausalLM)
