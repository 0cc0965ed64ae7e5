"""Registry: a table of interchangeable parts, name -> "module:attribute", loaded when used."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

from harness.core.errors import unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Registry:
    """A lazy table. ``group`` names the entry-point group through which other distributions add rows."""

    def __init__(self, what: str, rows: Mapping[str, str], *, group: str | None = None) -> None:
        self.what = what
        self._rows = dict(rows)
        self._group = group
        self._added: dict[str, str] | None = None

    def names(self) -> tuple[str, ...]:
        """All names, in table order, then those that other distributions add."""
        return tuple(self._all())

    def load(self, name: str) -> Any:
        """The part called ``name``.

        Raises:
            UnknownNameError: no such name; the message suggests the nearest and lists all.
        """
        rows = self._all()
        if name not in rows:
            raise unknown(self.what, name, rows)
        module, _, attribute = rows[name].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def put(self, name: str, row: str) -> None:
        """Have ``name`` mean ``row`` from now on, in this process."""
        self._rows[name] = row

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def _all(self) -> dict[str, str]:
        if self._group is None:
            return self._rows
        if self._added is None:
            rows = _of_all_distributions().select(group=self._group)
            self._added = {row.name: row.value for row in rows if row.name not in self._rows}
        return {**self._rows, **self._added}


@cache
def _of_all_distributions() -> Any:  # its type has another name in every Python
    """What is installed here adds: 20 ms, once for all tables."""
    from importlib.metadata import entry_points

    return entry_points()
