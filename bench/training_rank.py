"""A rank of ``training.py``: trains rows one after another and prints a JSON line for whatever happens.

    python bench/training_rank.py ROWS_AS_JSON [--smoke]    # under torchrun where the rows have two GPUs

``{"begin": NAME}`` when a row begins, ``{"step": ...}`` every few seconds, and a record with ``"ok"`` when it ends.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from dataclasses import asdict
from datetime import timedelta

from training_rows import Row, configuration

SAY_EVERY_S = 5.0


class Clock:
    """Notes when each step ends, what its loss was, and says so every few seconds."""

    def __init__(self, say):
        self.say, self.ends, self.losses = say, [], []
        self.began = self.said = time.perf_counter()

    def built(self, state):
        """Note how long building took."""
        self.built_s = time.perf_counter() - self.began

    def mark(self, **_):
        """Ignore phases."""

    def resolved(self, table):
        """Keep the kernels."""
        self.kernels = {row["op"]: row["kernel"] for row in table}

    def step_done(self, *, step, facts):
        """Note the time and the loss."""
        now = time.perf_counter()
        self.ends.append(now)
        self.losses.append(facts["loss"])
        if step == 0 or now - self.said >= SAY_EVERY_S:
            self.said = now
            self.say({"step": step, "loss": round(facts["loss"], 4), "step_s": round(facts["step_s"], 4)})


def measure(row: Row, *, smoke: bool, say) -> dict:
    """Train the row; what came out of it."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from nsa.train.trainer import train

    config, clock = configuration(row, smoke=smoke), Clock(say)
    on_gpu = config.train.device == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def stop_asked():
        return bool(clock.ends) and time.perf_counter() - clock.ends[0] > row.limit_s

    backends = {"": None, "cudnn": SDPBackend.CUDNN_ATTENTION}[row.sdpa]
    if backends is None or not on_gpu:
        result = train(config, [clock], stop_asked=stop_asked)
    else:
        with sdpa_kernel(backends):
            result = train(config, [clock], stop_asked=stop_asked)
    n_warm = min(20, max(1, len(clock.ends) // 10))
    steps_s = [b - a for a, b in zip(clock.ends[n_warm:], clock.ends[n_warm + 1 :], strict=False)]
    tenth = statistics.quantiles(steps_s, n=10, method="inclusive") if len(steps_s) > 1 else steps_s * 9
    tokens = config.train.batch_size * config.train.seq_len
    median_s = statistics.median(steps_s)
    return {
        "row": row.name, **asdict(row), "ok": True, "ended": result.ended, "n_steps": len(result.losses),
        "tokens_per_s": tokens / median_s, "step_ms": 1e3 * median_s, "step_ms_p10": 1e3 * tenth[0],
        "step_ms_p90": 1e3 * tenth[8], "first_step_s": clock.ends[0] - clock.began - clock.built_s,
        "total_s": clock.ends[-1] - clock.began, "flops_per_token": flops_per_token(config),
        "loss_first": clock.losses[0], "loss_last": statistics.fmean(clock.losses[-10:]),
        "losses": [round(loss, 4) for loss in clock.losses[:: max(1, len(clock.losses) // 50)]],
        "peak_allocated_gb": torch.cuda.max_memory_allocated() / 1e9 if on_gpu else None,
        "peak_reserved_gb": torch.cuda.max_memory_reserved() / 1e9 if on_gpu else None,
        "n_parameters": result.n_parameters, "kernels": clock.kernels,
    }  # fmt: skip


def flops_per_token(config) -> float:
    """Operations that the mathematics of forward and backward need per token, on average over the sequence."""
    from nsa.model.estimate import n_parameters

    model, seq_len = config.model, config.train.seq_len
    in_products = n_parameters(model) - model.vocab * model.dim - model.dim * (2 * model.n_layers + 1)
    if model.attention == "dense":
        keys = (seq_len + 1) / 2
    else:
        keys = statistics.fmean(model.layout.tokens_read(position) for position in range(seq_len))
    return 6 * in_products + 6 * model.n_layers * model.n_heads * (model.d_k + model.d_v) * keys


def work(rows: list[Row], *, smoke: bool) -> None:
    """Train the rows one after another in this process, one JSON line on standard output for each."""
    import torch
    import torch.distributed as dist

    rank, n_ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))

    def say(record):
        if rank == 0:
            print(json.dumps(record), flush=True)

    if not smoke:
        torch.cuda.set_device(rank)
    if n_ranks > 1:
        where = {} if smoke else {"device_id": torch.device("cuda", rank)}
        dist.init_process_group("gloo" if smoke else "nccl", timeout=timedelta(seconds=120), **where)
    for row in rows:
        say({"begin": row.name})
        try:
            say(measure(row, smoke=smoke, say=say))
        except Exception as error:
            say({"row": row.name, **asdict(row), "ok": False, "why": f"{type(error).__name__}: {error}"[:500]})
            raise
        gc.collect()
    if n_ranks > 1:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", help="a JSON list of rows")
    parser.add_argument("--smoke", action="store_true", help="tiny, on a CPU")
    args = parser.parse_args()
    work([Row(**row) for row in json.loads(args.rows)], smoke=args.smoke)


if __name__ == "__main__":
    main()
