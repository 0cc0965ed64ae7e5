"""Which GPU a site is on, as far as a choice of kernels depends on it."""

from __future__ import annotations

from functools import cache

import torch

HOPPER = (9, 0)
"""Compute capability of H100, H200 and GH200."""


def capability(device: torch.device) -> tuple[int, int] | None:
    """The GPU's compute capability; None where there is no such GPU, as on a machine that only plans."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_capability(device)


def is_hopper(device: torch.device) -> bool:
    """Whether the device is an sm_90 GPU; its matrix instructions (wgmma) are no other generation's."""
    return capability(device) == HOPPER


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of the GPU; as many as an H100 has where there is none and launches are only written down."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 132
