"""The files that a run leaves, in the original reports' formats."""

import csv
import json
import math
import re

import numpy as np
import pytest
import torch
from rank_work import SMALL as SMALL_MODEL
from rank_work import announced, arrivals, gradients, told

from nsa.config import RunConfig
from nsa.model.build import build_model
from nsa.train.__main__ import main
from nsa.train.telemetry import Lines, dtypes_report

SMALL = "model.n_layers=1 model.dim=32 model.n_heads=2 model.n_kv_groups=1 train.seq_len=32 train.steps=3"


@pytest.fixture
def folder(tmp_path, capsys):
    assert main(["--override", f"{SMALL} train.out_dir={tmp_path} train.save_every=2"]) == 0
    return tmp_path


def test_every_phase_of_every_step_is_in_the_heartbeats_with_both_ends(folder):
    beats = [json.loads(line) for line in (folder / "heartbeat_rank0.jsonl").read_text().splitlines()]
    assert all({"ts", "iso", "pid", "rank", "step", "msg"} <= beat.keys() for beat in beats)
    assert beats[0]["msg"] == "boot"
    second = [b["msg"] for b in beats if b["step"] == 1 and "detail" not in b]
    phases = ["data", "forward", "backward", "optim"]
    assert second == [f"{p}_{e}" for p in phases for e in ("begin", "end")] + ["progress", "save_begin", "save_end"]
    assert [b["detail"] for b in beats if b["msg"] == "backward_progress"] == ["blocks.0"] * 3
    assert all(math.isfinite(b["loss"]) for b in beats if b["msg"] == "progress")


def test_the_record_says_what_ran_and_where_each_setting_came_from(folder):
    about = json.loads((folder / "env.json").read_text())
    assert about["config"]["train"]["steps"] == 3
    assert (about["sources"]["train.steps"], about["sources"]["train.lr"]) == ("--override", "default")
    assert about["torch"] == torch.__version__
    assert len(json.loads((folder / "kernels.json").read_text())) == 5


def test_training_csv_has_step_loss_rate_and_speed(folder):
    with (folder / "training.csv").open() as file:
        rows = [[float(cell) for cell in row] for row in csv.reader(file)]
    assert [row[0] for row in rows] == [1, 2, 3]
    assert all(len(row) == 4 and row[2] == 3e-3 and row[3] > 0 for row in rows)


def test_what_is_selected_and_gated_is_written_for_the_logged_steps_only(tmp_path, capsys):
    small = SMALL.replace("n_layers=1", "n_layers=2")
    assert main(["--override", f"{small} train.out_dir={tmp_path} train.log_every=2 train.accumulate=2"]) == 0
    with (tmp_path / "k_stats.csv").open() as file:
        chosen = [[float(cell) for cell in row] for row in csv.reader(file)]
    # 32 tokens are two selection blocks: half of the tokens see one, half both.
    assert chosen == [[1, 1.5, 2, 32, 0], [3, 1.5, 2, 32, 0]]
    with (tmp_path / "gate_stats.csv").open() as file:
        gates = [[float(cell) for cell in row] for row in csv.reader(file)]
    assert [row[:2] for row in gates] == [[1, 0], [1, 1], [3, 0], [3, 1]]
    assert gates[0][2:] == pytest.approx([0.5, 0.5, 0.5, math.log(3), math.log(3)], rel=1e-5)


def test_watching_attention_changes_no_loss(tmp_path, capsys):
    printed = []
    for extra in ("", f" train.out_dir={tmp_path} train.checkpointing=selective"):
        assert main(["--override", SMALL + extra]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        printed.append([line["loss"] for line in lines if "loss" in line])
    assert printed[0] == printed[1]


def announced_once(lines):
    numbers, names = zip(*(line.removeprefix("gradient ").split(": ") for line in lines), strict=True)
    assert list(numbers) == [f"{i} of 51" for i in range(1, 52)]
    assert len(set(names)) == 51
    return names


@pytest.mark.parametrize("checkpointing", ["none", "reentrant", "nonreentrant"])
def test_every_gradient_is_announced_once_as_it_comes_from_the_last_block_to_the_first(checkpointing):
    names = announced_once(arrivals(0, {"train.checkpointing": checkpointing}))
    assert names.index("blocks.2.mlp.fc2.weight") < names.index("blocks.1.mlp.fc2.weight") < names.index("embed.weight")


@pytest.mark.long
def test_every_rank_announces_its_gradients_under_ddp(ranks):
    for lines in ranks.run(arrivals, {"parallel.mode": "ddp", "train.checkpointing": "reentrant"}):
        announced_once(lines)


MODULES = ["norm1", "attn", "norm2", "mlp"]


@pytest.mark.parametrize("checkpointing", ["none", "reentrant", "nonreentrant"])
def test_modules_are_announced_in_the_order_of_their_backward(checkpointing):
    lines = announced(0, {"train.trace_modules": True, "train.checkpointing": checkpointing})
    found = [line.removeprefix("backward of ") for line in lines if line.startswith("backward of ")]
    inner = [f"blocks.{i}.{name}" for i in (2, 1, 0) for name in reversed(MODULES)]
    assert found == ["lm_head", "norm_f", *inner, "embed"]


def test_buckets_are_announced_on_every_rank_and_leave_the_average_as_it_is(ranks):
    changes = {"parallel.mode": "ddp", "parallel.bucket_cap_mb": 1, "train.trace_buckets": True}
    n_elements = sum(p.numel() for p in build_model(RunConfig().with_values(SMALL_MODEL))[0].parameters())
    for lines in ranks.run(announced, changes):
        buckets = [line for line in lines if line.startswith("bucket ")]
        sizes = [int(re.search(r"(\d+) elements of torch.float32", line).group(1)) for line in buckets]
        assert sum(sizes) == n_elements
        assert [line.endswith(", the last") for line in buckets] == [False] * (len(buckets) - 1) + [True]
    plain = ranks.run(gradients, {"parallel.mode": "ddp"})
    traced = ranks.run(gradients, changes)
    for (losses, steps), (want_losses, want) in zip(traced, plain, strict=True):
        assert losses == want_losses
        assert all(
            np.array_equal(got[name], step[name]) for got, step in zip(steps, want, strict=True) for name in step
        )


def test_held_out_losses_and_kernels_have_their_rows(tmp_path, capsys):
    more = "train.eval_every=2 train.steps=4 train.log_every=2 kernels.policy=auto kernels.selected=triton"
    assert main(["--override", f"{SMALL} train.out_dir={tmp_path} {more}"]) == 0
    with (tmp_path / "val.csv").open() as file:
        rows = [[float(cell) for cell in row] for row in csv.reader(file)]
    assert [row[0] for row in rows] == [2, 4]
    assert all(row[2] == pytest.approx(math.exp(row[1]), rel=1e-4) and row[1] < 6 for row in rows)
    counters = (tmp_path / "fallback_counters.csv").read_text().splitlines()
    kernels = "compressed=packed,scores=torch,selected=sdpa,window=sdpa,combine=torch"
    assert counters == [f"{step},1,0,0,0,0,0,1,{kernels}" for step in (1, 3)]


def test_a_held_out_loss_is_the_same_on_one_process_and_on_two_and_changes_no_training(ranks):
    plain = told(0, {})
    alone = told(0, {"train.eval_every": 1})
    assert alone["losses"] == plain["losses"]
    for mode in ("ddp", "fsdp", "fsdp1"):
        for answer in ranks.run(told, {"train.eval_every": 1, "parallel.mode": mode}):
            assert answer["val_loss"] == pytest.approx(alone["val_loss"], rel=1e-5)


def test_memory_is_written_for_this_process_when_built_after_the_first_step_and_every_so_many(tmp_path, capsys):
    more = "train.steps=4 train.mem_every=2"
    assert main(["--override", f"{SMALL} train.out_dir={tmp_path} {more}"]) == 0
    names = sorted(p.name for p in tmp_path.glob("mem_*"))
    assert names == [f"mem_{w}.{kind}" for w in ("boot", "step1", "step2", "step4") for kind in ("json", "txt")]
    boot, later = (json.loads((tmp_path / f"mem_{when}.json").read_text()) for when in ("boot", "step4"))
    assert boot["unit"] == "MiB"
    assert later["weights"] == boot["weights"] > 0
    assert (boot["optimizer_state"], boot["gradients"], later["gradients"]) == (0, 0, 0)
    # Two moments per weight, and a step count per parameter.
    assert later["optimizer_state"] == pytest.approx(2 * later["weights"], rel=0.01)
    assert later["resident_peak"] >= later["resident"] > later["weights"]
    assert "optimizer_state: " in (tmp_path / "mem_step4.txt").read_text()


def test_curves_are_written_for_tensorboard(tmp_path, capsys):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert main(["--override", f"{SMALL} train.out_dir={tmp_path} train.eval_every=3"]) == 0
    losses = [json.loads(line).get("loss") for line in capsys.readouterr().out.splitlines()][1:]
    board = EventAccumulator(str(tmp_path / "tb"))
    board.Reload()
    assert [event.step for event in board.Scalars("loss")] == [1, 2, 3]
    assert [event.value for event in board.Scalars("loss")] == pytest.approx(losses)
    assert [event.step for event in board.Scalars("val_loss")] == [3]


def test_every_rank_is_alive_in_a_file_of_its_own(folder):
    lines = [json.loads(line) for line in (folder / "liveness_rank0.jsonl").read_text().splitlines()]
    assert lines[-1]["msg"] == "ended"
    assert (lines[-1]["step"], lines[-1]["phase"], lines[-1]["edge"]) == (2, "optim", "end")
    assert not (folder / "liveness_rank0.page").exists()


def test_types_are_counted_by_element():
    model = torch.nn.Linear(3, 2).to(torch.bfloat16)
    model.register_buffer("seen", torch.zeros(4))
    lines = dtypes_report(model).splitlines()
    assert lines[:3] == ["# DTYPE SUMMARY (elements)", "torch.bfloat16: 8 (66.67%)", "torch.float32: 4 (33.33%)"]
    assert "PARAM weight torch.bfloat16 (2, 3)" in lines
    assert "BUFFER seen torch.float32 (4,)" in lines


def test_a_line_comes_every_few_steps_and_whenever_five_seconds_have_passed(capsys):
    now = [100.0]
    lines = Lines(every=10, last=24, now=lambda: now[0])
    for step in range(25):
        now[0] += 6.0 if step == 13 else 0.1
        lines.step_done(step=step, facts={"loss": 1.0})
    assert [json.loads(line)["step"] for line in capsys.readouterr().out.splitlines()] == [0, 10, 13, 20, 24]
