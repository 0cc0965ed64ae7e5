"""Same: whether a run that is taken up again is about the same question, asked of the same machine and code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.core.dotted import leaves

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.record import Machine
    from harness.store.history import Identity


def differences(
    was: Mapping[str, Any], now: Mapping[str, Any], before: Identity, *, machine: Machine | None, code: str | None
) -> list[str]:
    """A line for each thing that is not as it ``was``; a machine or code of None is not compared."""
    lines = _differences(was, now)
    if machine is not None and machine.fingerprint != before.machine.fingerprint:
        lines.append(f"machine: was {before.machine.fingerprint}, now {machine.fingerprint}")
    if code is not None and _content(code) != _content(before.code):
        lines.append(f"code: was {before.code}, now {code}")
    return lines


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    old, new = leaves(before), leaves(now)
    return [
        f"{name}: was {old.get(name)!r}, now {new.get(name)!r}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def _content(code: str) -> str:
    # "0.1.0+<hash of the sources> (<commit>)": the same sources under another commit are the same code.
    return code.partition(" (")[0]
