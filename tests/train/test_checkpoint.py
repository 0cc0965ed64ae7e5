"""A run that is continued is the run that was not interrupted."""

import json
import signal

import pytest
from gloo_ranks import Ranks, fresh_processes
from rank_work import killed_at_the_end_of_a_save, rank_1_killed_while_saving, run

from nsa.errors import ConfigError

LONG = {"train.steps": 5, "train.lr": 3e-3, "train.schedule": "cosine", "train.warmup_steps": 2}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"train.precision": "bf16"}, marks=pytest.mark.long),
        pytest.param({"train.precision": "bf16", "train.precision_mode": "pure"}, marks=pytest.mark.long),
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


@pytest.mark.parametrize(
    "mode", ["ddp", "fsdp", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("fsdp1", "manual"))]
)
def test_two_ranks_continue_bit_for_bit(ranks, tmp_path, mode):
    files = {"train.out_dir": str(tmp_path), "train.save_every": 3, "parallel.mode": mode}
    whole = ranks.run(run, {**LONG, **files})
    continued = ranks.run(run, {**LONG, **files, "train.resume": True})
    assert whole[0][1] == whole[1][1]
    assert [(first, losses) for first, losses, _ in continued] == [(3, losses[3:]) for _, losses, _ in whole]


def ways(ranks):
    """How a mode is run on one process and on two."""
    alone = {"parallel.allow_single": True}
    return {1: lambda changes: run(0, {**alone, **changes}), 2: lambda changes: ranks.run(run, changes)[0]}


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        ((2, "fsdp"), (1, "single")),
        pytest.param((1, "fsdp"), (2, "fsdp"), marks=pytest.mark.long),
        pytest.param((2, "fsdp1"), (2, "fsdp"), marks=pytest.mark.long),
        pytest.param((2, "fsdp"), (1, "fsdp"), marks=pytest.mark.long),
        pytest.param((1, "single"), (2, "fsdp"), marks=pytest.mark.long),
        pytest.param((2, "ddp"), (1, "single"), marks=pytest.mark.long),
    ],
    ids=lambda way: f"{way[1]}-{way[0]}",
)
def test_another_number_of_ranks_or_another_mode_continues_a_run(ranks, tmp_path, saved, loaded):
    files = {"train.out_dir": str(tmp_path), "train.save_every": 3}
    _, whole, _ = ways(ranks)[saved[0]]({**LONG, **files, "parallel.mode": saved[1]})
    more = {**LONG, **files, "parallel.mode": loaded[1], "train.resume": True}
    first, losses, _ = ways(ranks)[loaded[0]](more)
    assert first == 3
    assert losses == pytest.approx(whole[3:], rel=1e-5)


def test_a_stream_continues_bit_for_bit_on_as_many_ranks_and_with_the_same_text_on_others(ranks, tmp_path):
    for shard in range(2):
        lines = [json.dumps({"text": f"document {i} of {shard}, " * 8}) + "\n" for i in range(60)]
        (tmp_path / f"{shard}.jsonl").write_text("".join(lines))
    data = {"train.data": "fineweb-edu", "train.data_path": str(tmp_path), "train.shards": 2}
    files = {"train.out_dir": str(tmp_path / "out"), "train.save_every": 3}
    _, whole, _ = ranks.run(run, {**LONG, **data, **files, "parallel.mode": "fsdp"})[0]
    more = {**LONG, **data, **files, "train.resume": True}
    assert ranks.run(run, {**more, "parallel.mode": "fsdp"})[0][:2] == (3, whole[3:])
    first, losses, _ = run(0, more)
    assert first == 3
    assert losses == pytest.approx(whole[3:], rel=1e-5)


@pytest.mark.long
def test_when_one_rank_is_killed_while_saving_the_other_names_it_and_the_checkpoint_before_is_continued(
    ranks, tmp_path
):
    files = {"train.out_dir": str(tmp_path), "parallel.mode": "fsdp"}
    _, whole, _ = ranks.run(run, {**LONG, "parallel.mode": "fsdp"})[0]
    broken = Ranks()
    try:
        text = broken.answer_of(0, rank_1_killed_while_saving, 3, {**LONG, **files})
    finally:
        broken.kill()
    assert text.startswith("RankLost: rank 0 lost a rank in save of step 2: rank 1 does not answer a roll call"), text
    finished = {p.name for p in (tmp_path / "checkpoints").iterdir() if not p.name.startswith("unfinished_")}
    assert finished == {"step_00000001", "step_00000002"}

    assert ranks.run(run, {**LONG, **files, "train.resume": True})[0][:2] == (2, whole[2:])
