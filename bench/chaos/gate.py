"""A place at which one of our own processes stops itself, so that its system calls can be counted from there.

Importing this reads ``NSA_CHAOS_GATE``: how many forks below the importing process the wanted one is. There it
stops; whoever placed the gate attaches to it and continues it (``bench.chaos``). Standard library only: it is
imported where site-packages are not.
"""

from __future__ import annotations

import os
import signal

from harness.settings import surroundings

GATE = "NSA_CHAOS_GATE"

_wanted = int(dict(surroundings()).get(GATE, "-1"))
_depth = 0


def _stop_here() -> None:
    if _depth == _wanted:
        os.kill(os.getpid(), signal.SIGSTOP)


def _forked() -> None:
    global _depth
    _depth += 1
    _stop_here()


os.register_at_fork(after_in_child=_forked)
_stop_here()
