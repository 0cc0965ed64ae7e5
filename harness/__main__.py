"""``python -P -m harness`` is ``nsa-harness``."""

import atexit
import gc
import signal
import sys
from collections.abc import Callable
from types import FrameType

from nsa_harness.start import leave

Handler = Callable[[int, FrameType | None], object] | int | None


def entry(before: Handler = signal.default_int_handler) -> None:
    """The command line; Ctrl-C ends it with 130 at once until a command runs, and then does what it did before.

    SIGTERM and a closed terminal are as Ctrl-C is: what has begun is ended in order. What was ignored stays ignored.
    """
    signals = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    for number in (signal.SIGINT, *signals):
        signal.signal(number, leave)
    gc.disable()  # what is imported stays: walking it is a tenth of the start, and of the end
    from harness.cli.front import answered

    status = answered(sys.argv[1:])
    if status is not None:
        raise SystemExit(status)
    from harness.cli.main import interrupt, main

    gc.freeze()
    gc.enable()
    atexit.register(gc.freeze)

    def raising() -> None:
        for number in signals:
            signal.signal(number, interrupt)
        signal.signal(signal.SIGINT, interrupt if before is signal.default_int_handler else before)

    try:
        main(prog_name="nsa-harness", obj=raising)
    except SystemExit as end:
        if end.code == 128 + signal.SIGINT:
            # An interrupt that met an eval(), as in the making of a namedtuple, would make CPython end by the signal.
            leave(signal.SIGINT, None)
        raise


if __name__ == "__main__":
    entry(signal.getsignal(signal.SIGINT))
