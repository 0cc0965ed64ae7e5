"""Whole numbers that kernels are launched with. Triton's functions of these names take the host 2 to 3 us a call."""

from __future__ import annotations


def cdiv(x: int, y: int) -> int:
    """The quotient of two counts, rounded up."""
    return -(-x // y)


def pow2(x: int) -> int:
    """The least power of two that is not below x, which is positive."""
    return 1 << (x - 1).bit_length()
