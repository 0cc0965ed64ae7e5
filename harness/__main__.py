"""``python -P -m harness`` is ``nsa-harness``."""

import atexit
import gc
import os
import signal
from types import FrameType


def entry() -> None:
    """The command line; Ctrl-C ends it with 130 also while it is being imported."""
    before = signal.signal(signal.SIGINT, _leave)
    gc.disable()  # what is imported stays: walking it is a tenth of the start, and of the end
    from harness.cli.main import main

    gc.freeze()
    gc.enable()
    atexit.register(gc.freeze)
    signal.signal(signal.SIGINT, before)
    try:
        main(prog_name="nsa-harness")
    except SystemExit as end:
        if end.code == 128 + signal.SIGINT:
            # An interrupt that met an eval(), as in the making of a namedtuple, would make CPython end by the signal.
            _leave(signal.SIGINT, None)
        raise


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    entry()
