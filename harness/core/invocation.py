"""Invocation: a command of ours as its parts, so that it is asked again with one option changed and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace

PROGRAM = "nsa-harness"

SEARCHES = (("matrix", "run"), ("bisect",), ("minimise",), ("explore",), ("trial",))
"""Commands that ask a question, whose runs any of them takes up with ``--resume``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """What was typed, as the commands' own declarations of their options understood it.

    ``verb`` is the command (``matrix``, ``run``), ``operands`` its arguments, ``options`` pairs of an option and its
    value, None for one that takes none. ``command`` are a stranger's words behind ``--``: nothing is ever looked for
    in them.
    """

    verb: tuple[str, ...]
    operands: tuple[str, ...] = ()
    options: tuple[tuple[str, str | None], ...] = ()
    command: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """The words to type; read again by the same command they mean the same."""
        words: list[str] = []
        for name, value in self.options:
            if value is None:
                words.append(name)
            else:
                words += [f"{name}={value}"] if value.startswith("-") or not value else [name, value]
        behind = ("--", *self.command) if self.command else ()
        return (PROGRAM, *self.verb, *self.operands, *words, *behind)

    @property
    def is_search(self) -> bool:
        """Whether its run is one that ``--resume`` takes up."""
        return self.verb in SEARCHES

    def has(self, option: str) -> bool:
        """Whether ``option`` was typed."""
        return option in dict(self.options)

    def values_of(self, option: str) -> tuple[str, ...]:
        """Every value that ``option`` was given, in their order."""
        return tuple(value for name, value in self.options if name == option and value is not None)

    def having(self, option: str, value: str | None = None) -> Invocation:
        """The same with ``option`` at ``value``, in place of what it was; without a value, with a flag."""
        return replace(self, options=(*self.without(option).options, (option, value)))

    def without(self, option: str) -> Invocation:
        """The same without ``option``."""
        return replace(self, options=tuple(pair for pair in self.options if pair[0] != option))
