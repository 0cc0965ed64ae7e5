"""What one rank sees, all ranks act on: in the same step, with a message that names the rank."""

import pytest
from rank_work import one_rank_wishes, run

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
