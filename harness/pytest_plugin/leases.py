"""Fixtures ``gpus`` and ``ports``: what a test holds alone, among all processes of this machine that ask here.

Two workers of pytest-xdist, two sessions, a session and ``nsa-harness matrix run``: they meet in the same claims
(``harness.launch.claims``). What a test holds is given back at its end, or by the kernel when its process ends.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.launch.claims import Claims


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedGpus:
    """GPUs of one test: ``devices`` are what torch calls them in this process, ``names`` what CUDA calls them.

    ``env`` is for programs that the test starts: they see these GPUs and no other, as ``cuda:0``, ``cuda:1``.
    """

    devices: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def env(self) -> dict[str, str]:
        """``{"CUDA_VISIBLE_DEVICES": ...}``."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.names)}


@pytest.fixture
def gpus() -> Iterator[Callable[[int], LeasedGpus]]:
    """``gpus(n)``: GPUs that no other test and no trial of this machine has meanwhile, of those that are visible.

    Waits until so many are free, and skips the test where fewer are visible. Once a test: with two calls two tests
    could wait for each other.
    """
    from harness.observe.neighbours import visible_gpus
    from harness.settings import Settings

    requests: list[int] = []
    with ExitStack() as stack:

        def take(n: int) -> LeasedGpus:
            requests.append(n)
            if len(requests) > 1:
                raise RuntimeError("gpus(n) may be called once in a test: ask for all that it needs at once")
            visible = visible_gpus(dict(Settings.read().whole_env))
            if n > len(visible):
                pytest.skip(f"needs {n} GPUs, {len(visible)} are visible here")
            claim = stack.enter_context(_claims().gpus(n, among=visible))
            return LeasedGpus(names=claim.names, devices=tuple(f"cuda:{visible.index(name)}" for name in claim.names))

        yield take


@pytest.fixture
def ports() -> Iterator[Callable[[int], tuple[int, ...]]]:
    """``ports(n)``: TCP ports on which nobody listens, and that no other test of this machine gets meanwhile."""
    with ExitStack() as stack:

        def take(n: int) -> tuple[int, ...]:
            return tuple(map(int, stack.enter_context(_claims().ports(n)).names))

        yield take


def _claims() -> Claims:
    from harness.cli.wiring import claims
    from harness.settings import Settings

    return claims(Settings.read())
