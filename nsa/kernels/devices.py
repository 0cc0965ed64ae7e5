"""Which GPU a site is on, as far as a choice of kernels depends on it."""

from __future__ import annotations

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
