"""A DDP job over gloo whose rank 1 silently waits for ever in its data set; the patient of ``hang_latency.py``.

It writes the monotonic time at which it gets stuck into the file named by STUCK_AT. ``--timeout`` is torch's own limit.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Shards(torch.utils.data.Dataset):
    """Random rows; the stuck rank never gets row ``stuck_at``."""

    def __init__(self, *, stuck_at: int | None) -> None:
        self.stuck_at = stuck_at

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.005)
        if self.stuck_at is not None and index >= self.stuck_at:
            read_shard()
        return torch.randn(64)


def read_shard() -> None:
    """What never returns."""
    if "STUCK_AT" in os.environ:
        Path(os.environ["STUCK_AT"]).write_text(str(time.monotonic()))
    threading.Event().wait()


def main() -> None:
    """Train until rank 1 is stuck, and then wait for it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--timeout", type=float, help="seconds; torch's default is 30 minutes for gloo")
    parser.add_argument("--steps", type=int, default=1000)
    asked = parser.parse_args()
    limit = {} if asked.timeout is None else {"timeout": dt.timedelta(seconds=asked.timeout)}
    dist.init_process_group("gloo", **limit)
    torch.set_num_threads(1)
    rank = dist.get_rank()
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = iter(torch.utils.data.DataLoader(Shards(stuck_at=40 if rank == 1 else None), batch_size=4))
    for _ in range(asked.steps):
        optimizer.zero_grad()
        model(next(rows)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
