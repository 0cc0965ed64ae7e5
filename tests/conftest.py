"""What holds for every test."""

import gc
import signal

from hypothesis import HealthCheck, settings

gc.disable()  # what is collected stays: walking it again and again is a tenth of the collection

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so, and every command that a test interrupts would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples every time: a red test stays red until it is mended, and one that is green is green for everybody.
# A busy machine makes an example slow, not wrong. To look for new ones: pytest --hypothesis-profile=explore
settings.register_profile(
    "suite", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
settings.register_profile("many", settings.get_profile("explore"), max_examples=2000)
settings.load_profile("suite")


def pytest_collection_finish():
    gc.freeze()
    gc.enable()
