"""The model in transformers: padding changes nothing, generation continues, what is saved is what is loaded."""

import pytest
import torch
from interruptions import InterruptAt, InterruptAtLine, Interrupted

pytest.importorskip("transformers", reason="pip install 'nsa-harness[hf]'")

from transformers import AutoConfig, AutoModelForCausalLM

from nsa import NSAConfig, NSAForCausalLM
from nsa.attention.cache import CacheError
from nsa.config import ModelConfig
from nsa.errors import ConfigError, InputError
from nsa.hf import NSACache

SIZES = {
    "vocab_size": 90,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "l": 8,
    "d": 4,
    "l_slc": 8,
    "n": 4,
    "w": 10,
    "pad_token_id": 0,
}
PADS = (0, 7, 19, 39)


def model_of(**changes):
    torch.manual_seed(0)
    model = NSAForCausalLM(NSAConfig(**{**SIZES, **changes})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("fc2.weight", ".pe")):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def padded(side="left", T=40):
    ids, mask = (
        torch.randint(1, 90, (len(PADS), T), generator=torch.Generator().manual_seed(5)),
        torch.ones(len(PADS), T),
    )
    for row, n in enumerate(PADS):
        places = slice(0, n) if side == "left" else slice(T - n, T)
        ids[row, places], mask[row, places] = 0, 0
    return ids, mask.long()


def alone(ids, mask, row):
    return ids[row : row + 1, mask[row].bool()]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("attention", ["nsa", "dense"])
def test_a_padded_row_gives_the_logits_and_gradients_it_gives_alone(side, attention):
    model, (ids, mask) = model_of(attention=attention).double(), padded(side)
    together = model(ids, attention_mask=mask, labels=ids)
    together.loss.backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    n_predicted = sum(40 - n - 1 for n in PADS)
    total = 0.0
    for row in range(len(PADS)):
        x = alone(ids, mask, row)
        single = model(x, labels=x, num_items_in_batch=n_predicted)
        torch.testing.assert_close(together.logits[row, mask[row].bool()], single.logits[0], rtol=1e-9, atol=1e-9)
        if x.shape[1] > 1:
            single.loss.backward()
            total += single.loss.item()
    assert together.loss.item() == pytest.approx(total, rel=1e-5)  # transformers' loss is fp32
    for grad, parameter in zip(grads, model.parameters(), strict=True):
        torch.testing.assert_close(grad, parameter.grad, rtol=1e-4, atol=1e-6)


def test_what_stands_in_the_padding_changes_no_bit():
    model, (ids, mask) = model_of(), padded()
    other = torch.where(mask.bool(), ids, 17)
    real = mask.bool()
    assert torch.equal(model(ids, attention_mask=mask).logits[real], model(other, attention_mask=mask).logits[real])


@pytest.mark.parametrize("use_cache", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("how", [{}, {"num_beams": 3}, {"eos_token_id": 32}], ids=["greedy", "beams", "with an end"])
def test_prompts_of_unequal_length_continue_as_each_does_alone(use_cache, how):
    model, (ids, mask) = model_of().double(), padded()
    settings = {"max_new_tokens": 14, "do_sample": False, "use_cache": use_cache, **how}
    together = model.generate(ids, attention_mask=mask, **settings)[:, 40:]
    for row in range(len(PADS)):
        x = alone(ids, mask, row)
        single = model.generate(x, attention_mask=torch.ones_like(x), **settings)[0, x.shape[1] :]
        assert together[row, : len(single)].tolist() == single.tolist()
        assert not together[row, len(single) :].any()


def test_greedy_generation_is_the_argmax_of_the_whole_text():
    model, ids = model_of().double(), torch.randint(1, 90, (2, 11))
    text = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False)
    assert torch.equal(text[:, 11:], model(text).logits[:, 10:-1].argmax(-1))


@pytest.mark.parametrize("name", ["past_key_values", "cache"])  # as transformers calls it from 5.24 on
def test_a_text_goes_on_in_calls_of_any_length_behind_one_cache(name):
    model, ids = model_of().double(), torch.randint(1, 90, (2, 40))
    whole = model(ids).logits
    first = model(ids[:, :13], use_cache=True)
    pieces, cache = [first.logits], first.past_key_values
    for start, stop in ((13, 14), (14, 30), (30, 40)):
        pieces.append(model(ids[:, start:stop], **{name: cache}).logits)
        assert cache.get_seq_length() == stop
    torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(model(ids, logits_to_keep=3).logits, whole[:, -3:], rtol=1e-9, atol=1e-9)


def test_logits_of_padding_behind_a_cache_are_zero_and_those_of_tokens_are_theirs():
    model, (ids, mask) = model_of().double(), padded()
    cached, plain = (model(ids, attention_mask=mask, use_cache=c).logits for c in (True, False))
    real = mask.bool()
    torch.testing.assert_close(cached[real], plain[real], rtol=1e-9, atol=1e-9)
    assert not cached[~real].any()


def test_a_call_that_an_exception_ends_is_taken_in_by_no_row():
    model, (ids, mask) = model_of(), padded()
    cache = model(ids, attention_mask=mask, use_cache=True).past_key_values
    wanted = model(ids[:, :1], past_key_values=model(ids, attention_mask=mask, use_cache=True).past_key_values).logits
    calls = []

    def interrupt(*_):
        calls.append(1)
        if len(calls) == 3:  # the third length's rows; two have been through
            raise KeyboardInterrupt

    hook = model.model.lm_head.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        model(ids[:, :1], past_key_values=cache)
    hook.remove()
    assert cache.get_seq_length() == 40
    assert torch.equal(model(ids[:, :1], past_key_values=cache).logits, wanted)


@pytest.mark.long
@pytest.mark.parametrize("interrupt", [InterruptAt, InterruptAtLine])
def test_a_call_interrupted_anywhere_is_taken_in_by_no_row_and_the_retry_has_the_same_bits(interrupt):
    model, (ids, mask) = model_of(num_hidden_layers=1).requires_grad_(False), padded()
    ids, mask = ids[1:3], mask[1:3]
    undisturbed, cache = (model(ids, attention_mask=mask, use_cache=True).past_key_values for _ in range(2))
    with interrupt(0) as count:
        wanted = [model(ids[:, :1], past_key_values=undisturbed).logits]
    wanted.append(model(ids[:, 1:3], past_key_values=undisturbed).logits)
    # What comes when the rows' step is done, the answer's own wrapping, is too late to take it back.
    done = 0
    for n in range(1, count.seen + 1):
        with pytest.raises(Interrupted), interrupt(n):
            model(ids[:, :1], past_key_values=cache)
        if cache.get_seq_length() == 41:
            done = count.seen - n
            break
        assert [group.n_tokens for _, group in cache._groups] == [33, 21]
    assert done < 6
    assert n > 60
    cache = model(ids, attention_mask=mask, use_cache=True).past_key_values if done else cache
    got = [model(ids[:, :1], past_key_values=cache).logits, model(ids[:, 1:3], past_key_values=cache).logits]
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_what_cannot_be_meant_is_refused():
    model, (ids, mask) = model_of(), padded("right")
    cu = torch.tensor([0, 40])
    with pytest.raises(InputError, match="a prompt ends in padding; pad on the left"):
        model(ids, attention_mask=mask, use_cache=True)
    with pytest.raises(InputError, match=r"attention_mask has shape \(4, 39\); it needs \(4, 40\)"):
        model(ids, attention_mask=mask[:, 1:])
    with pytest.raises(InputError, match="either cu_seqlens or attention_mask"):
        model(ids[:1], attention_mask=mask[:1], cu_seqlens=cu)
    with pytest.raises(InputError, match="either cu_seqlens or a cache"):
        model(ids[:1], cu_seqlens=cu, use_cache=True)
    cache = model(ids, use_cache=True).past_key_values
    with pytest.raises(CacheError, match="2 rows behind a cache of 4"):
        model(ids[:2, :1], past_key_values=cache)
    with pytest.raises(InputError, match="padding behind the first call"):
        model(ids[:, :2], attention_mask=torch.tensor([[1, 0]] * 4), past_key_values=cache)
    ids, mask = padded()
    left = model(ids, attention_mask=mask, use_cache=True)
    with pytest.raises(CacheError, match="a row cannot continue one of another length"):
        left.past_key_values.reorder_cache(torch.tensor([1, 0, 2, 3]))


def test_packed_documents_have_the_loss_of_documents_one_by_one():
    model = model_of().double()
    ids, cu = torch.randint(1, 90, (1, 60)), torch.tensor([0, 21, 21, 60])
    packed = model(ids, labels=ids, cu_seqlens=cu)
    assert model(ids, labels=ids, cu_seqlens=cu.tolist()).loss.item() == pytest.approx(packed.loss.item(), rel=1e-5)
    apart = [model(x, labels=x, num_items_in_batch=20 + 38).loss.item() for x in (ids[:, :21], ids[:, 21:])]
    assert packed.loss.item() == pytest.approx(sum(apart), rel=1e-5)


@pytest.mark.parametrize("is_tied", [False, True])
def test_what_is_saved_is_what_auto_classes_load(tmp_path, is_tied):
    model, ids = model_of(tie_word_embeddings=is_tied), torch.randint(1, 90, (1, 30))
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(loaded) is NSAForCausalLM
    assert (loaded.model.lm_head.weight is loaded.model.embed.weight) == is_tied
    assert torch.equal(loaded.eval()(ids).logits, model(ids).logits)
    assert AutoConfig.from_pretrained(tmp_path).sizes == model.config.sizes
    half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert half(ids).logits.dtype == torch.bfloat16


def test_configurations_of_both_sides_are_one_to_one_and_checked():
    sizes = ModelConfig(decoder="modern", n_heads=6, n_kv_groups=3, d_k=10, d_v=7, phi="mean", tied_head=True, w=33)
    assert NSAConfig.of(sizes, eos_token_id=3).sizes == sizes
    assert NSAConfig(hidden_size=64, num_attention_heads=4).sizes.d_v == 16
    with pytest.raises(ConfigError, match=r"model\.n_heads = 5 is not a multiple"):
        NSAForCausalLM(NSAConfig(**{**SIZES, "num_attention_heads": 5, "head_dim": 8}))


def test_new_weights_are_drawn_as_the_decoder_draws_them():
    model = NSAForCausalLM(NSAConfig(**SIZES))
    attention = model.model.blocks[0].attn
    assert not attention.gate.fc2.weight.any()
    assert not attention.phi_k.pe.any()
    assert attention.q_proj.weight.std().item() == pytest.approx(32**-0.5, rel=0.1)
    assert isinstance(model.get_input_embeddings(), torch.nn.Embedding)
    model.resize_token_embeddings(100)
    assert model(torch.tensor([[99]])).logits.shape == (1, 1, 100)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("is_recomputed", [False, True])
def test_trainer_takes_a_step_with_padding_and_with_recomputation(tmp_path, is_recomputed):
    from transformers import Trainer, TrainingArguments  # two seconds that nobody else needs

    model = model_of()
    before = [p.detach().clone() for p in model.parameters()]
    ids, mask = padded()
    rows = [
        {"input_ids": i, "attention_mask": m, "labels": torch.where(m.bool(), i, -100)}
        for i, m in zip(ids, mask, strict=True)
    ]
    how = TrainingArguments(
        tmp_path,
        max_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        save_strategy="no",
        gradient_checkpointing=is_recomputed,
    )
    trained = Trainer(model, how, train_dataset=rows).train()
    assert model.model.has_checkpointing == is_recomputed
    assert 3.5 < trained.training_loss < 6.0
    assert sum(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)) > len(before) - 3


def test_a_cache_says_how_many_tokens_were_handed_in():
    model, (ids, mask) = model_of(), padded()
    cache = NSACache(model.model)
    assert cache.get_seq_length() == 0
    model(ids, attention_mask=mask, past_key_values=cache)
    assert cache.get_seq_length() == 40
