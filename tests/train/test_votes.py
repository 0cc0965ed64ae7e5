"""What one rank sees, all ranks act on: in the same step, with a message that names the rank."""

import json
import re

import pytest
from rank_work import message, one_rank_wishes, run, told

MODES = ["ddp", "fsdp", "manual"]


@pytest.mark.parametrize("mode", MODES)
def test_a_loss_that_is_not_finite_on_one_rank_ends_all_and_names_it(ranks, mode):
    for text in ranks.run(one_rank_wishes, {"parallel.mode": mode}, 1, 2, "nan"):
        assert text.startswith("NonFiniteLoss: loss = nan at step 2 on rank 1, in forward, before backward")


@pytest.mark.parametrize("mode", MODES)
def test_a_signal_to_one_rank_ends_all_after_the_same_step_with_a_checkpoint(ranks, tmp_path, mode):
    changes = {"parallel.mode": mode, "train.out_dir": str(tmp_path)}
    answers = ranks.run(one_rank_wishes, changes, 1, 2, "signal")
    assert answers == ["2 steps: a signal ended the run after 2 steps, on rank 1"] * 2
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step_00000002"]


@pytest.mark.parametrize("mode", MODES)
def test_a_halt_file_ends_all_ranks_after_the_same_step_with_a_checkpoint(ranks, tmp_path, mode):
    changes = {"parallel.mode": mode, "train.out_dir": str(tmp_path)}
    answers = ranks.run(one_rank_wishes, changes, 1, 2, "halt")
    ended = re.fullmatch(r"2 steps: a file .HALT ended the run after 2 steps, on rank [01, ]+", answers[0])
    assert ended, answers
    assert answers[1] == answers[0]
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step_00000002"]


def one_shard_for_two(folder):
    (folder / "0.jsonl").write_text(json.dumps({"text": "ab" * 5000}) + "\n")
    return {"parallel.mode": "ddp", "train.data": "fineweb-edu", "train.data_path": str(folder)}


def test_an_empty_shard_of_one_rank_ends_all_at_once_and_names_it(ranks, tmp_path):
    answers = ranks.run(message, one_shard_for_two(tmp_path))
    assert answers == [
        "DataFailed: rank 1 has no data at step 0: its own output says why",
        "DataFailed: rank 1 has no data at step 0: part 2 of 2 of the data has no documents; give more shards, or use "
        "fewer processes",
    ]


def test_random_ids_for_all_when_one_rank_has_no_data_and_every_record_says_so(ranks, tmp_path, caplog):
    (tmp_path / "data").mkdir()
    changes = {**one_shard_for_two(tmp_path / "data"), "train.synthetic_on_fail": True}
    answers = ranks.run(told, changes)
    why = "random ids instead of train.data = 'fineweb-edu': rank 1 has no data at step 0: "
    assert answers[0]["ended"] == f"all steps done; {why}its own output says why"
    assert answers[1]["ended"].startswith(f"all steps done; {why}part 2 of 2 of the data has no documents")
    for answer in answers:
        assert answer["synthetic"] == [1.0, 1.0]
        assert answer["announced"] == [answer["ended"].removeprefix("all steps done; ")]
    _, losses, _ = run(0, {"train.data": "synthetic"})
    assert answers[0]["losses"] == pytest.approx(losses, rel=1e-5)


def test_the_end_of_the_text_ends_the_run_after_the_last_whole_step(ranks, tmp_path):
    text = tmp_path / "text.txt"
    text.write_bytes(b"ab" * (96 * 2 * 4 + 50))  # four steps of four sequences need 4 * 4 * 96 + 1 bytes
    changes = {"train.data": "local", "train.data_path": str(text), "train.steps": 9}
    first, losses, ended = run(0, changes)
    assert (first, len(losses), ended) == (0, 4, "the data ended after 4 steps, on rank 0")
    for answer in ranks.run(run, {**changes, "parallel.mode": "ddp"}):
        assert answer[2] == "the data ended after 4 steps, on rank 0, 1"
        assert answer[1] == pytest.approx(losses, rel=1e-5)


def test_a_halt_file_ends_the_run_with_a_checkpoint_and_an_old_one_does_not(ranks, tmp_path):
    (tmp_path / ".HALT").touch()
    _, losses, ended = run(0, {"train.out_dir": str(tmp_path)})
    assert (len(losses), ended) == (2, "all steps done")
    assert not (tmp_path / ".HALT").exists()
