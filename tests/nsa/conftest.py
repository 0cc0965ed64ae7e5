import sys
import warnings
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # for what several tests share


@pytest.fixture(autouse=True)
def _one_thread_and_a_fixed_seed():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def opcheck():
    """Torch's own check of an operator, without what torch 2.14 warns itself of in it, and makes an error here."""

    def check(*given, **options):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
            return torch.library.opcheck(*given, **options)

    return check
