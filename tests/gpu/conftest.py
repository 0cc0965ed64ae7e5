"""Everything here needs a CUDA device; without one it is skipped, with the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
# cuBLAS repeats its bits only with a fixed workspace, and reads this once, at its start.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            for harmless in (
                "ignore:Synchronization debug mode is a prototype",
                "ignore:`torch.jit:DeprecationWarning",
            ):
                item.add_marker(pytest.mark.filterwarnings(harmless))
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device; torch sees none"))


@pytest.fixture
def nan_filled(monkeypatch):
    """New tensors start as NaN (integers as a large negative number), so an element nobody writes shows."""

    def poisoned(make):
        def create(*args, **kwargs):
            made = make(*args, **kwargs)
            return made.fill_(
                float("nan") if made.is_floating_point() else -(2**14 if made.dtype == torch.int16 else 2**30)
            )

        return create

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))
