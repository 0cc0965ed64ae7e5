"""Training with train.documents is training document by document, in every mode, from every source."""

import json
import shutil
from itertools import pairwise

import numpy as np
import pytest
import torch
from rank_work import SMALL, gradients, run

from nsa.config import RunConfig
from nsa.errors import ConfigError
from nsa.model.build import build_model
from nsa.train.data import batches, held_out, local_text, stdlib_text
from nsa.train.documents import begun, joined, packed
from nsa.train.loader import Loader


@pytest.fixture
def texts(tmp_path):
    """Documents of 5 to 90 bytes, in one JSONL file; rows of 96 tokens cut some and hold several."""
    sizes = np.random.default_rng(0).integers(5, 90, 120)
    documents = ["".join(chr(97 + (i * 7 + j * j) % 26) for j in range(size)) for i, size in enumerate(sizes)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return {"train.data": "local", "train.data_path": str(tmp_path), "train.documents": True}


def test_marks_become_boundaries_and_leave_the_ids():
    ids = joined(
        [torch.tensor([5, 0, 7]), torch.tensor([0, 1]), torch.tensor([], dtype=torch.int64), torch.tensor([9] * 6)]
    )
    assert ids.tolist() == [~5, 0, 7, ~0, 1, ~9, 9, 9, 9, 9, 9]
    batch = packed(ids.unfold(0, 6, 5).long())
    assert batch.ids_1S.tolist() == [[5, 0, 7, 0, 1, 9, 9, 9, 9, 9]]
    assert batch.targets_S.tolist() == [0, 7, 0, 1, 9, 9, 9, 9, 9, 9]
    assert batch.cu_seqlens == (0, 3, 5, 10)
    # A row begins a document where the text went on, too.
    assert packed(torch.tensor([[~1, 2, 3], [3, 4, ~5]])).cu_seqlens == (0, 2, 4)
    assert not len(begun(torch.tensor([], dtype=torch.int32)))


@pytest.mark.parametrize("attention", ["nsa", "dense"])
def test_packed_training_equals_padded_training_in_loss_and_gradients(texts, attention):
    changes = {**texts, "model.attention": attention, "train.steps": 1}
    (loss,), (got,) = gradients(0, changes)
    config = RunConfig().with_values({**SMALL, **changes})
    torch.manual_seed(config.train.seed)
    model, _ = build_model(config)
    batch = packed(batches(config)(0)[0])
    spans = list(pairwise(batch.cu_seqlens))
    longest = max(stop - start for start, stop in spans)
    assert 4 < len(spans) < 60
    rows = torch.full((len(spans), longest), 3)
    for row, (start, stop) in enumerate(spans):
        rows[row, : stop - start] = batch.ids_1S[0, start:stop]
    logits = model(rows)
    real = torch.cat([logits[row, : stop - start] for row, (start, stop) in enumerate(spans)])
    wanted = torch.nn.functional.cross_entropy(real, batch.targets_S)
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-6)
    for name, parameter in model.named_parameters():
        scale = max(1e-8, float(np.linalg.norm(parameter.grad.double())))
        assert np.linalg.norm(got[name] - parameter.grad.double().numpy()) <= 2e-5 * scale + 1e-9, name


def test_documents_kept_apart_are_another_training_than_documents_run_together(texts):
    apart, together = (run(0, {**texts, "train.documents": is_on})[1] for is_on in (True, False))
    assert apart != together


@pytest.mark.parametrize("mode", ["fsdp", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("ddp", "manual"))])
def test_two_ranks_have_the_gradients_of_one(ranks, texts, mode):
    changes = {**texts, "train.accumulate": 2, "train.checkpointing": "nonreentrant"}
    losses, plain = gradients(0, {**changes, "train.checkpointing": "none"})
    found, got = ranks.run(gradients, {**changes, "parallel.mode": mode})[0]
    assert found == pytest.approx(losses, rel=1e-6)
    for step, (a, b) in enumerate(zip(got, plain, strict=True)):
        for name in b:
            scale = max(1e-8, float(np.linalg.norm(b[name])))
            assert np.linalg.norm(a[name] - b[name]) <= 2e-5 * scale + 1e-9, (step, name)


def test_every_source_has_the_text_that_it_has_without_marks(texts, tmp_path):
    config = RunConfig().with_values({**texts, "train.seq_len": 400, "train.batch_size": 2})
    plain = config.with_value("train.documents", value=False)
    lines = (tmp_path / "texts.jsonl").read_text().splitlines()
    for step in range(3):
        (marked,), (wanted,) = batches(config)(step), batches(plain)(step)
        assert torch.equal(torch.where(marked < 0, ~marked, marked), wanted)
    text = bytes(local_text(str(tmp_path)).numpy()).decode()
    first = [len("".join(json.loads(line)["text"] + "\n" for line in lines[:i])) for i in range(4)]
    assert (batches(config)(0)[0][0] < 0).nonzero()[:4, 0].tolist() == first
    assert text.startswith(json.loads(lines[0])["text"] + "\n")
    ours = RunConfig().with_values({"train.documents": True, "train.seq_len": 2000})
    (marked,), (wanted,) = batches(ours)(0), batches(ours.with_value("train.documents", value=False))(0)
    assert torch.equal(torch.where(marked < 0, ~marked, marked), wanted)
    assert len(stdlib_text()) > 1_000_000
    assert held_out(ours.with_value("train.eval_every", 1))(0)[0].shape == (1, 2001)


def test_a_stream_marks_its_documents_and_continues_bit_for_bit(tmp_path):
    pytest.importorskip("datasets")
    lines = [json.dumps({"text": f"document {i}, " * (1 + i % 5)}) + "\n" for i in range(200)]
    (tmp_path / "0.jsonl").write_text("".join(lines))
    data = {"train.data": "fineweb-edu", "train.data_path": str(tmp_path), "train.documents": True}
    loader = Loader(RunConfig().with_values({**SMALL, **data}))
    (ids,) = loader.fetch(0)
    loader.close()
    text = "".join(json.loads(line)["text"] + "\n" for line in lines)
    assert bytes(torch.where(ids < 0, ~ids, ids)[0].tolist()).decode() == text[:97]
    starts = [len("".join(json.loads(line)["text"] + "\n" for line in lines[:i])) for i in range(3)]
    assert (ids[0] < 0).nonzero()[:3, 0].tolist() == starts
    files = {"train.out_dir": str(tmp_path / "out"), "train.save_every": 2, "train.steps": 4}
    _, whole, _ = run(0, {**data, **files})
    shutil.rmtree(tmp_path / "out" / "checkpoints" / "step_00000004")
    first, rest, _ = run(0, {**data, **files, "train.resume": True})
    assert (first, rest) == (2, whole[2:])


def test_random_ids_that_stand_in_are_documents_of_their_own(capsys):
    config = RunConfig().with_values({**SMALL, "train.data": "synthetic", "train.documents": True})
    batch = packed(batches(config)(0)[0])
    assert batch.cu_seqlens == (0, 96, 192, 288, 384)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train.compile": "inductor"}, "train.documents with train.compile = 'inductor'"),
        ({"train.cuda_graphs": "blocks", "train.device": "cuda"}, "train.documents with train.cuda_graphs = 'blocks'"),
        ({"model.attention": "legacy-sequential"}, "train.documents with model.attention = 'legacy-sequential'"),
    ],
)
def test_what_documents_cannot_go_with_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig().with_values({"train.documents": True, **change})
