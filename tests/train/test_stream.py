"""Text that is streamed: by the call that reads FineWeb-Edu, from shards on this machine, without a network."""

import base64
import json
import socket
import threading

import pytest
import torch

from nsa.config import RunConfig
from nsa.errors import ConfigError, DataFailed
from nsa.train.ahead import Ahead
from nsa.train.data import EndOfData
from nsa.train.loader import Loader
from nsa.train.world import World

N_SHARDS, N_DOCUMENTS = 4, 12


@pytest.fixture(scope="module", params=["jsonl", "parquet"])
def shards(request, tmp_path_factory):
    """Four shards of twelve documents, in one of the two formats."""
    folder = tmp_path_factory.mktemp(request.param)
    for shard in range(N_SHARDS):
        texts = [f"<{shard}:{i}>" + "abcdefgh" * (i % 3) for i in range(N_DOCUMENTS)]
        if request.param == "jsonl":
            lines = [json.dumps({"text": text, "score": 1.5}) + "\n" for text in texts]
            (folder / f"{shard}.jsonl").write_text("".join(lines))
        else:
            import pyarrow as pa
            from pyarrow import parquet

            table = pa.table({"text": texts, "score": [1.5] * len(texts)})
            parquet.write_table(table, folder / f"{shard}.parquet", row_group_size=5)
    return folder


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(_socket, address):
        raise AssertionError(f"connected to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def streamed(folder, **more):
    changes = {"train.data": "fineweb-edu", "train.data_path": str(folder), "train.seq_len": 8, "train.batch_size": 4}
    return RunConfig().with_values({**changes, **more})


def text_of(micro_batches):
    return [bytes(row[:-1].tolist()).decode() for ids in micro_batches for row in ids]


def read_to_the_end(loader):
    steps = []
    try:
        while True:
            steps.append(loader.fetch(len(steps)))
    except EndOfData:
        return steps


def test_two_ranks_deal_out_the_batches_that_one_process_has_and_read_disjoint_documents(shards):
    alone = read_to_the_end(Loader(streamed(shards, **{"train.shards": 2, "train.accumulate": 2})))
    config = streamed(shards, **{"train.accumulate": 2})
    dealt = [read_to_the_end(Loader(config, World(rank=rank, size=2))) for rank in range(2)]
    assert len(alone) == len(dealt[0]) == len(dealt[1]) > 3
    for step, micro_batches in enumerate(alone):
        assert [ids.shape for ids in micro_batches] == [(4, 9)] * 2
        for i, ids in enumerate(micro_batches):
            assert torch.equal(torch.cat([dealt[0][step][i], dealt[1][step][i]]), ids)
    read = ["".join("".join(text_of(step)) for step in mine) for mine in dealt]
    documents = [{f"<{s}:{i}>" for s in range(N_SHARDS) for i in range(N_DOCUMENTS) if f"<{s}:{i}>" in t} for t in read]
    assert not documents[0] & documents[1]
    assert len(documents[0] | documents[1]) > 0.8 * N_SHARDS * N_DOCUMENTS


def test_reading_goes_on_at_the_token_after_the_last_step_that_was_done(shards):
    config = streamed(shards, **{"train.shards": 2, "train.prefetch": 3})
    whole = read_to_the_end(Loader(config))
    first = Loader(config)
    for step in range(4):
        assert all(map(torch.equal, first.fetch(step), whole[step]))
        first.done()
    first.fetch(4)  # fetched, and not trained on when the run ends
    written = json.loads(json.dumps(first.position()))
    first.close()

    # On two ranks, with the parts that one process read.
    ranks = [Loader(streamed(shards), World(rank=rank, size=2)) for rank in range(2)]
    for loader in ranks:
        loader.go_to(written)
    rest = [read_to_the_end(loader) for loader in ranks]
    assert [len(steps) for steps in rest] == [len(whole) - 4] * 2
    for step, (ids,) in enumerate(whole[4:]):
        assert torch.equal(torch.cat([steps[step][0] for steps in rest]), ids)


def test_a_position_of_another_number_of_parts_is_refused(shards):
    written = Loader(streamed(shards, **{"train.shards": 2})).position()
    with pytest.raises(ConfigError, match=r"read in 2 parts and is read in 1 now.*Set train.shards = 2"):
        Loader(streamed(shards)).go_to(written)


@pytest.mark.parametrize(("n_parts", "size"), [(3, 1), (1, 2), (8, 1)])
def test_parts_that_cannot_be_dealt_out_evenly_are_refused(shards, n_parts, size):
    with pytest.raises(ConfigError, match="every process reads the same number of parts"):
        Loader(streamed(shards, **{"train.shards": n_parts}), World(rank=0, size=size))


def test_a_part_without_documents_is_an_error_and_not_the_end(tmp_path):
    (tmp_path / "0.jsonl").write_text('{"text": "one document for two"}\n')
    config = streamed(tmp_path)
    assert text_of(Loader(config, World(rank=0, size=2)).fetch(0))[0] == "one docu"
    with pytest.raises(DataFailed, match="part 2 of 2 of the data has no documents"):
        Loader(config, World(rank=1, size=2)).fetch(0)


def test_a_broken_shard_says_which_part_and_why(tmp_path):
    (tmp_path / "0.jsonl").write_text('{"text": "good"}\n')
    loader = Loader(streamed(tmp_path))
    (tmp_path / "0.jsonl").write_text('{"text": broken\n')
    with pytest.raises(DataFailed, match="reading part 1 of 1 of the data failed: "):
        loader.fetch(0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (None, "", r"cannot open the dataset [^\n]*[^.]\. train"),
        ("a.jsonl", '{"txt": "a"}\n', "no column 'text'; it has txt"),
    ],
)
def test_what_is_no_dataset_of_texts_is_refused(tmp_path, name, content, message):
    if name:
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=message):
        Loader(streamed(tmp_path))


def test_data_that_do_not_come_in_time_are_an_error_and_those_before_are_not_lost():
    release, made = threading.Event(), iter([1, 2])

    def produce():
        for value in made:
            return value
        release.wait()
        return 3

    ahead = Ahead(produce, depth=2)
    assert [ahead.get(60.0), ahead.get(60.0)] == [1, 2]
    with pytest.raises(DataFailed, match=r"no batch came within train.loader_timeout_s = 0.05 s"):
        ahead.get(0.05)
    release.set()
    ahead.close()


# Tokens


def ranks_file(folder):
    """Every byte, and two merges: enough of GPT-2's vocabulary for a text."""
    words = [bytes([value]) for value in range(256)] + [b"th", b"the"]
    lines = [f"{base64.b64encode(word).decode()} {rank}\n" for rank, word in enumerate(words)]
    (folder / "small.tiktoken").write_text("".join(lines))
    return folder / "small.tiktoken"


GPT2 = {"train.tokenizer": "gpt2", "model.vocab": 259}


def test_gpt2_merges_come_from_a_local_file_and_every_document_ends_with_its_token(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "0.jsonl").write_text('{"text": "the thin"}\n{"text": "then"}\n')
    config = streamed(tmp_path / "data", **GPT2, **{"train.tokenizer_path": str(ranks_file(tmp_path))})
    (ids,) = Loader(config.with_values({"train.batch_size": 1, "train.seq_len": 8})).fetch(0)
    th, the, end = 256, 257, 258
    assert ids.tolist() == [[the, ord(" "), th, ord("i"), ord("n"), end, the, ord("n"), end]]


def test_gpt2_reads_a_local_text_too(tmp_path):
    (tmp_path / "text.txt").write_text("the the the")
    changes = {"train.data": "local", "train.data_path": str(tmp_path / "text.txt"), "train.seq_len": 4}
    config = RunConfig().with_values({**changes, **GPT2, "train.tokenizer_path": str(ranks_file(tmp_path))})
    (ids,) = Loader(config).fetch(0)
    assert ids.tolist() == [[257, 32, 257, 32, 257]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train.tokenizer": "gpt2"}, "would fetch its merges from the network, and the data are on this machine"),
        ({"train.tokenizer_path": "nowhere.tiktoken", **GPT2}, "cannot read train.tokenizer_path"),
        ({"model.vocab": 255}, "model.vocab = 255 is less than the 256 byte values"),
    ],
)
def test_a_tokenizer_that_cannot_work_is_refused(shards, changes, message):
    with pytest.raises(ConfigError, match=message):
        Loader(streamed(shards, **changes))


def test_a_vocabulary_that_is_too_small_and_a_broken_line_are_named(tmp_path, shards):
    file = ranks_file(tmp_path)
    with pytest.raises(ConfigError, match=r"model\.vocab = 256 is less than the 259 tokens of gpt2"):
        Loader(streamed(shards, **{"train.tokenizer": "gpt2", "train.tokenizer_path": str(file)}))
    file.write_text(file.read_text() + "no rank\n")
    with pytest.raises(ConfigError, match=r"small\.tiktoken:259 is no base64 word and its rank"):
        Loader(streamed(shards, **GPT2, **{"train.tokenizer_path": str(file)}))
