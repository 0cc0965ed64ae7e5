"""A run that is continued is the run that was not interrupted."""

import signal

import pytest
from gloo_ranks import fresh_processes
from rank_work import killed_at_the_end_of_a_save, run

from nsa.errors import ConfigError

LONG = {"train.steps": 5, "train.lr": 3e-3, "train.schedule": "cosine", "train.warmup_steps": 2}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"train.precision": "bf16"},
        {"train.precision": "bf16", "train.precision_mode": "pure"},
        {"train.precision": "fp16"},
    ],
    ids=["fp32", "bf16", "bf16-pure", "fp16"],
)
def test_a_continued_run_has_the_losses_of_the_uninterrupted_one_bit_for_bit(tmp_path, changes):
    files = {"train.out_dir": str(tmp_path), "train.save_every": 3}
    _, whole, _ = run(0, {**LONG, **changes, **files})
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step_00000003"]

    first, rest, _ = run(0, {**LONG, **changes, **files, "train.resume": True})
    assert (first, rest) == (3, whole[3:])


def test_killed_while_saving_it_continues_from_the_checkpoint_before(tmp_path):
    _, whole, _ = run(0, LONG)
    work = fresh_processes().Process(target=killed_at_the_end_of_a_save, args=(str(tmp_path), 3, LONG))
    work.start()
    work.join()
    assert work.exitcode == -signal.SIGKILL
    assert {p.name for p in (tmp_path / "checkpoints").iterdir()} == {
        "step_00000001",
        "step_00000002",
        "unfinished_00000003",
    }

    first, rest, _ = run(0, {**LONG, "train.out_dir": str(tmp_path), "train.resume": True})
    assert (first, rest) == (2, whole[2:])
    assert not list((tmp_path / "checkpoints").glob("unfinished_*"))


def test_nothing_to_continue_is_a_fresh_start(tmp_path):
    first, losses, _ = run(0, {"train.out_dir": str(tmp_path), "train.resume": True})
    assert (first, len(losses)) == (0, 2)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    files = {"train.out_dir": str(tmp_path), "train.save_every": 1}
    run(0, files)
    with pytest.raises(ConfigError, match="step_00000002 does not fit this model"):
        run(0, {**files, "train.resume": True, "train.steps": 4, "model.n_layers": 4})


@pytest.mark.parametrize("mode", ["ddp", "fsdp", "fsdp1", "manual"])
def test_two_ranks_continue_bit_for_bit(ranks, tmp_path, mode):
    files = {"train.out_dir": str(tmp_path), "train.save_every": 3, "parallel.mode": mode}
    whole = ranks.run(run, {**LONG, **files})
    continued = ranks.run(run, {**LONG, **files, "train.resume": True})
    assert whole[0][1] == whole[1][1]
    assert [(first, losses) for first, losses, _ in continued] == [(3, losses[3:]) for _, losses, _ in whole]


@pytest.mark.parametrize(("saved", "loaded"), [("fsdp", "single"), ("fsdp1", "fsdp"), ("ddp", "single")])
def test_one_process_or_another_mode_continues_what_two_ranks_saved(ranks, tmp_path, saved, loaded):
    files = {"train.out_dir": str(tmp_path), "train.save_every": 3}
    whole = ranks.run(run, {**LONG, **files, "parallel.mode": saved})[0][1]
    more = {**LONG, **files, "parallel.mode": loaded, "train.resume": True}
    first, losses, _ = run(0, more) if loaded == "single" else ranks.run(run, more)[0]
    assert first == 3
    assert losses == pytest.approx(whole[3:], rel=1e-5)


def test_two_ranks_continue_what_one_process_saved(ranks, tmp_path):
    files = {"train.out_dir": str(tmp_path), "train.save_every": 3}
    _, whole, _ = run(0, {**LONG, **files})
    for first, losses, _ in ranks.run(run, {**LONG, **files, "train.resume": True, "parallel.mode": "fsdp"}):
        assert first == 3
        assert losses == pytest.approx(whole[3:], rel=1e-5)
