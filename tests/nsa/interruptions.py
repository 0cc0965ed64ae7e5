"""Exceptions at every operator and every line of a step, as signals may bring them."""

import sys
from pathlib import Path

from torch.utils._python_dispatch import TorchDispatchMode

import nsa


class Interrupted(BaseException):
    """What a signal handler may raise: not an Exception."""


class InterruptAt(TorchDispatchMode):
    """Raise before operator number ``n``; counts them without end if there are fewer."""

    def __init__(self, n):
        super().__init__()
        self.n, self.seen = n, 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.seen += 1
        if self.seen == self.n:
            raise Interrupted
        return operator(*args, **(kwargs or {}))


class InterruptAtLine:
    """Raise before line number ``n`` of those that the package runs, as a signal's handler may; counts them as well."""

    def __init__(self, n):
        self.n, self.seen = n, 0

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_):
        sys.settrace(self.before)

    def _called(self, frame, event, _):
        return self._line if frame.f_code.co_filename in STEP_FILES else None

    def _line(self, frame, event, _):
        if event == "line":
            self.seen += 1
            if self.seen == self.n:
                raise Interrupted
        return self._line


STEP_FILES = {
    str(Path(nsa.__file__).parent / name)
    for name in ("attention/cache.py", "attention/layer.py", "model/transformer.py", "hf/modeling.py")
}
"""The modules that take a step in, and take it back; by their place, as to look for the last imports transformers."""
