"""A census of the first steps: how large the autograd graph is, of what, whether it grows, who waits for the device.

A graph whose size follows the length of the sequence is built by a Python loop over tokens; one that grows from step
to step holds on to earlier steps; a forward that reads values from the device cannot run ahead of it. All three were
true of the original reports' model, and each can be counted before the first backward begins.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

MARK = "census: "
"""How an announcement of a census begins; JSON follows."""

SYNCHRONISING = ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal", "aten::unique")
"""Operators whose result the host has to wait for, by the beginning of their name; ``item`` is the first."""


class Census:
    """Counts in the first ``n_steps`` steps of a run and announces what it found; nothing later.

    Args:
        n_steps: how many steps are counted.
        announce: told one line per counted step.
    """

    def __init__(self, n_steps: int, announce: Callable[[str], None]) -> None:
        self._left, self._announce = n_steps, announce
        self._syncs: Counter[str] = Counter()
        self._before: int | None = None

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Around a forward: count the operators that the host waits for."""
        if not self._left:
            yield
            return
        self._syncs.clear()
        with _Synchronising(self._syncs):
            yield

    def before_backward(self, loss: Tensor) -> None:
        """Count the graph that backward is about to walk, and say so."""
        if not self._left:
            return
        self._left -= 1
        by_type = graph_nodes(loss)
        n_nodes = by_type.total()
        grown = None if self._before is None else n_nodes - self._before
        self._before = n_nodes
        found = {
            "autograd_nodes": n_nodes,
            "more_than_the_step_before": grown,
            "host_synchronisations_in_forward": self._syncs.total(),
            "synchronising_operators": dict(self._syncs),
            "nodes_by_type": dict(by_type.most_common()),
        }
        self._announce(MARK + json.dumps(found))


def graph_nodes(loss: Tensor) -> Counter[str]:
    """How many nodes of each type backward from ``loss`` will visit."""
    found: Counter[str] = Counter()
    seen: set[Any] = set()
    waiting: list[Any] = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found[type(node).__name__] += 1
        waiting.extend(parent for parent, _ in node.next_functions)
    return found


class _Synchronising(TorchDispatchMode):
    """Counts operators that need a value on the host."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition(".")[0]
        if name.startswith(SYNCHRONISING):
            self._counts[name] += 1
        return func(*args, **(kwargs or {}))
