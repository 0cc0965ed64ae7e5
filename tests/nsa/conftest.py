import pytest
import torch
from hypothesis import settings

# The same examples every time: a red test stays red until it is mended.
settings.register_profile("nsa", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("nsa")


@pytest.fixture(autouse=True)
def _one_thread_and_a_fixed_seed():
    torch.set_num_threads(1)
    torch.manual_seed(0)
