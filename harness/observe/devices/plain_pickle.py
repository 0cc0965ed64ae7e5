"""Reads a pickle of plain data without running anything in it: torch's flight recorder writes one."""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

MAX_BYTES = 64 << 20
MAX_OPCODES = 20_000_000

# Containers, numbers, text and the memo. Not among them: anything that names a class or calls it (GLOBAL, REDUCE,
# BUILD, INST, OBJ, NEWOBJ, EXT*, PERSID), and what may ask for memory before it is there (BYTEARRAY8).
PLAIN = frozenset({
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE",
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES",
    "SHORT_BINBYTES", "EMPTY_LIST", "APPEND", "APPENDS", "LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET",
    "MEMOIZE",
})  # fmt: skip


def load_plain(data: bytes) -> Any:
    """The lists, dicts, tuples, numbers and texts that ``data`` holds.

    Every opcode is looked at before the first one is carried out.

    Raises:
        ValueError: it is too large, torn, no pickle, or holds anything but plain data.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"{len(data)} bytes are more than the {MAX_BYTES} that are read")
    try:
        for number, (opcode, _, _) in enumerate(pickletools.genops(data)):
            if opcode.name not in PLAIN:
                raise ValueError(f"it holds more than plain data ({opcode.name}); it was not loaded")
            if number >= MAX_OPCODES:
                raise ValueError(f"it has more than {MAX_OPCODES} opcodes")
        return _NoClasses(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, IndexError, KeyError, TypeError, AttributeError, UnicodeError) as error:
        raise ValueError(f"it is no whole pickle: {error}") from error


class _NoClasses(pickle.Unpickler):
    """Refuses every class, should an opcode that names one ever get past the first look."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is not plain data")
