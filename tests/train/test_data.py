"""Which sequences a step has, and who gets them."""

import json

import pytest
import torch

from nsa.config import RunConfig
from nsa.errors import ConfigError
from nsa.train.data import EndOfData, batches, held_out, local_text, stdlib_text
from nsa.train.world import World

SMALL = RunConfig().with_values({"train.seq_len": 7, "train.batch_size": 4, "train.accumulate": 3})


def local(path, **more):
    return SMALL.with_values({"train.data": "local", "train.data_path": str(path), **more})


@pytest.mark.parametrize("data", ["bytes", "synthetic"])
def test_ranks_deal_out_the_sequences_that_one_process_has(data):
    config = SMALL.with_value("train.data", data)
    alone = batches(config)(5)
    dealt = [batches(config, World(rank=rank, size=2))(5) for rank in range(2)]
    assert [micro.shape for micro in alone] == [(4, 8)] * 3
    for i, micro in enumerate(alone):
        assert torch.equal(torch.cat([mine[i] for mine in dealt]), micro)


def test_a_step_of_accumulated_micro_batches_has_the_sequences_of_one_large_batch():
    large = SMALL.with_values({"train.batch_size": 12, "train.accumulate": 1})
    assert torch.equal(torch.cat(batches(SMALL)(2)), batches(large)(2)[0])


def test_local_text_is_read_once_from_front_to_back_and_then_ends(tmp_path):
    text = bytes(range(200))
    (tmp_path / "text.txt").write_bytes(text)
    fetch = batches(local(tmp_path / "text.txt"))
    rows = torch.cat([*fetch(0), *fetch(1)])
    assert rows.shape == (24, 8)
    # Each row's last token is the next one's first: a target there, an input here.
    assert bytes(rows[:, :-1].flatten().tolist()) == text[: 24 * 7]
    assert torch.equal(rows[1:, 0], rows[:-1, -1])
    with pytest.raises(EndOfData, match="step 2 needs tokens 168 to 253 of a text of 200"):
        fetch(2)


def test_a_folder_is_read_in_the_order_of_its_names_and_jsonl_by_its_texts(tmp_path):
    (tmp_path / "b.txt").write_text("plain")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t, "id": 1}) + "\n" for t in ("eins", "zwei\n")))
    (tmp_path / "c.bin").write_bytes(b"not text")
    assert bytes(local_text(str(tmp_path)).tolist()) == b"eins\nzwei\n\nplain"


@pytest.mark.parametrize("line", ["{", '{"txt": "a"}', "[1]", '{"text": 3}'])
def test_a_line_that_is_no_document_is_named(tmp_path, line):
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n' + line + "\n")
    with pytest.raises(ConfigError, match=r"a\.jsonl:2 is no JSON object with a text"):
        local_text(str(tmp_path))


@pytest.mark.parametrize(("path", "message"), [("", "does not exist"), ("nowhere", "does not exist"), (".", "no text")])
def test_no_text_is_an_error_that_says_so(tmp_path, monkeypatch, path, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        local_text(path)


def test_held_out_bytes_are_in_no_text_that_is_trained_on_and_ranks_deal_them_out():
    config = SMALL.with_values({"train.seq_len": 400, "train.data": "bytes"})
    trained = bytes(stdlib_text().tolist())
    (alone,) = held_out(config)(3)
    assert alone.shape == (4, 401)
    for row in alone.tolist():
        assert bytes(row) not in trained
    dealt = [held_out(config, World(rank=rank, size=2))(3)[0] for rank in range(2)]
    assert torch.equal(torch.cat(dealt), alone)


def test_other_data_are_held_out_by_another_seed_or_a_text_of_their_own(tmp_path):
    noise = SMALL.with_value("train.data", "synthetic")
    assert not torch.equal(held_out(noise)(0)[0], batches(noise)(0)[0])
    (tmp_path / "a.txt").write_bytes(bytes(range(200)))
    (tmp_path / "b.txt").write_bytes(bytes(range(199, -1, -1)))
    with pytest.raises(ConfigError, match=r"with train.data = 'local' needs train.val_path"):
        held_out(local(tmp_path / "a.txt"))
    (ids,) = held_out(local(tmp_path / "a.txt", **{"train.val_path": str(tmp_path / "b.txt")}))(0)
    assert ids[0, :3].tolist() == [199, 198, 197]
