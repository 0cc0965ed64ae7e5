"""Standard output and error as doors: what leaves is clean text that fits the terminal, and nothing there ends a run.

A reader that went away (``| head``), a full disk behind ``> log`` and a closed descriptor cost only what was to be
shown: everything is in the run's folder.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from harness.report.clean import clean
from harness.settings import surroundings
from harness.store.redact import redact_text, remember, secrets

if TYPE_CHECKING:
    from collections.abc import Generator

SPELLED = str.maketrans({
    "·": "*", "²": "^2", "×": "x", "–": "-", "—": "-", "…": "...", "→": "->", "≤": "<=", "≥": ">=", "µ": "u", "─": "-",
    "━": "=", "│": "|", "├": "|", "└": "`",
})  # fmt: skip
"""Characters of ours where the locale has none of them."""


class Door(io.TextIOBase):
    """A text stream for people: controls of strangers do not pass, and a failure to write is kept, not raised.

    ``uncleaned`` is the same stream for what moves the cursor itself: whoever uses it cleans what strangers say.
    """

    def __init__(self, stream: TextIO | None, *, fd: int, cleans: bool = True) -> None:
        self._stream = stream or open(fd, "w", encoding="ascii", closefd=False)  # noqa: SIM115 - a descriptor
        self._fd, self._cleans = fd, cleans
        self.failure: OSError | None = None

    @property
    def uncleaned(self) -> Door:
        """The same stream, as it is."""
        return Door(self._stream, fd=self._fd, cleans=False)

    @property
    def encoding(self) -> str:  # pyrefly: ignore[bad-override] - TextIOBase declares a variable
        """What the stream's reader expects."""
        return self._stream.encoding or "ascii"

    @property
    def buffer(self) -> Any:
        """The stream of bytes below it, for what is written for a shell and not for people."""
        return self._stream.buffer

    def write(self, text: str) -> int:
        """Take ``text``, whatever becomes of it."""
        printable = cleaned(text) if self._cleans else text
        try:
            printable.encode(self.encoding)
        except UnicodeEncodeError:
            printable = printable.translate(SPELLED).encode(self.encoding, "backslashreplace").decode(self.encoding)
        self._try(lambda: self._stream.write(printable))
        return len(text)

    def flush(self) -> None:
        """Hand everything over that can be."""
        if not self._stream.closed:  # Python 3.13 tells of what a forgotten stream raises when it is flushed for good
            self._try(self._stream.flush)

    def _try(self, act: Any) -> None:
        if self.failure is not None:
            return
        try:
            act()
        except OSError as error:
            self.failure = error
            _empty(self._fd)  # what the buffers still hold has to go somewhere, also when the interpreter ends

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        return self.failure is None and self._stream.isatty()

    def fileno(self) -> int:
        """The descriptor behind it."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """It is."""
        return True


def cleaned(text: str) -> str:
    """``text`` as a terminal may have it: without controls, and without what looks like a secret."""
    return redact_text(clean(text))


def uncleaned(stream: TextIO) -> TextIO:
    """``stream`` for what moves the cursor itself."""
    return cast("TextIO", stream.uncleaned) if isinstance(stream, Door) else stream


@contextmanager
def doors() -> Generator[Door]:
    """Standard output and error are doors within; gives that of standard output."""
    _open_all()
    remember(secrets(surroundings()))
    before = sys.stdout, sys.stderr
    out, err = Door(sys.stdout, fd=1), Door(sys.stderr, fd=2)
    sys.stdout, sys.stderr = cast("TextIO", out), cast("TextIO", err)
    try:
        yield out
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = before


@contextmanager
def standing() -> Generator[None]:
    """Doors, around a whole command; what it said and nobody could be given becomes its end.

    Raises:
        SystemExit: standard output is on a full disk, say. A reader that went away is no failure.
    """
    with doors() as out:
        try:
            yield
        finally:
            out.flush()
            if out.failure is not None and not isinstance(out.failure, BrokenPipeError):
                from harness.cli.exit_codes import tell
                from harness.core.errors import StoreError

                sentence = f"standard output could not be written: {out.failure.strerror}"
                raise SystemExit(tell(StoreError(sentence)))


def _open_all() -> None:
    """A standard descriptor that is closed would be given to the next file that is opened, and that be printed into."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one


def _empty(fd: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, fd)
    os.close(nowhere)
