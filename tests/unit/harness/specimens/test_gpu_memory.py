"""The specimen that makes torch's allocator thrash, against a model of that allocator: there is no GPU here.

The model has what decides (c10/cuda/CUDACachingAllocator.cpp): a block is taken from the cache by best fit and cut to
size; beyond the process's share of the memory, all kept blocks that are not cut are given back and it is tried once
more, which counts as a retry; if that fails too, it is out of memory.
"""

import itertools
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from harness.specimens import gpu
from harness.specimens.gpu import MIB, ROOM_BYTES, THRASH_S, allocate_odd_sizes, odd_sizes

SCENE = SimpleNamespace(device="cuda")
TRAINER_BYTES = 66 * MIB
"""What the trainer held on an H200 when the specimen struck for the second time."""


@dataclass
class Block:
    """A segment of the device's memory: its size, and how much of it is in use."""

    size: int
    used: int = 0


class Allocator:
    """Segments, at most ``room`` bytes of them; ``retries`` counts how often all that was kept had to go."""

    def __init__(self, room):
        self.room, self.blocks, self.retries = room, [], 0

    def take(self, size):
        fits = [block for block in self.blocks if block.size - block.used >= size]
        if fits:
            block = min(fits, key=lambda block: block.size - block.used)
        else:
            if self.reserved + size > self.room:
                self.empty_cache()
                self.retries += 1
            if self.reserved + size > self.room:
                raise torch.OutOfMemoryError(f"{size / MIB:.0f} MiB beside {self.reserved / MIB:.0f} MiB")
            block = Block(size)
            self.blocks.append(block)
        block.used += size
        return block

    def empty_cache(self):
        self.blocks = [block for block in self.blocks if block.used]

    @property
    def reserved(self):
        return sum(block.size for block in self.blocks)


class Tensor:
    """A tensor that nobody keeps: filled, and free again."""

    def __init__(self, allocator, size):
        self.block, self.size = allocator.take(size), size

    def fill_(self, _):
        self.block.used -= self.size


@pytest.fixture
def allocator(monkeypatch):
    allocator, now = Allocator(ROOM_BYTES), [0.0]

    def empty(size, *, dtype, device):
        assert (dtype, device) == (torch.uint8, "cuda")
        now[0] += THRASH_S / 40
        return Tensor(allocator, size)

    monkeypatch.setattr(torch, "empty", empty)
    for name, fake in {
        "device": lambda _: nullcontext(),
        "current_device": lambda: 0,
        "get_device_properties": lambda _: SimpleNamespace(total_memory=140 << 30),
        "set_per_process_memory_fraction": lambda share, _: None,
        "empty_cache": allocator.empty_cache,
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(gpu.time, "monotonic", lambda: now[0])
    return allocator


def test_every_step_thrashes_and_none_runs_out_of_memory(allocator):
    """The trainer takes what it needs between two strikes and keeps it, as it did when this ended as OOM."""
    per_step = []
    for _ in range(5):
        before = allocator.retries
        allocate_odd_sizes.strike(SCENE)
        per_step.append(allocator.retries - before)
        allocator.take(TRAINER_BYTES // 2)
    assert min(per_step) >= 2 * (len(odd_sizes()) - 1)


def test_a_trainer_cut_out_of_a_kept_block_is_what_ran_out_of_memory(allocator, monkeypatch):
    """Without giving back what it kept: the block of 1500 MiB that the trainer's tensors lie in cannot go."""
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    allocate_odd_sizes.strike(SCENE)
    allocator.take(TRAINER_BYTES)
    with pytest.raises(torch.OutOfMemoryError):
        allocate_odd_sizes.strike(SCENE)


def test_no_size_fits_into_or_beside_the_one_before_it_and_each_leaves_room_for_the_trainer():
    sizes = odd_sizes()
    assert all(size % (2 * MIB) == 0 for size in sizes)
    assert all(small < large and small + large > ROOM_BYTES for small, large in itertools.pairwise(sizes))
    assert sizes[-1] + 6 * TRAINER_BYTES <= ROOM_BYTES
