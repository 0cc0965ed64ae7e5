import sys
from pathlib import Path

import pytest
import torch

# The ranks are fresh interpreters: what they run must be importable there by its own name.
sys.path.insert(0, str(Path(__file__).parent))
from gloo_ranks import Ranks


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def ranks():
    started = Ranks()
    yield started
    started.close()
