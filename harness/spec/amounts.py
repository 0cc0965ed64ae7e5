"""Amounts as people write them: numbers and durations, each with a bound, so that none is infinite or has no end."""

from __future__ import annotations

import re

from harness.core.point import LARGEST

UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s*(ms|s|m|h)?")

LONGEST_S = 366 * 86400.0
"""The longest time that can be asked for: a year."""


def duration(text: str) -> float:
    """Seconds, written 90, 90s, 1.5m or 2h. ValueError for anything else, nothing, and more than a year."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * UNITS[match[2] or ""] if match else 0.0
    if not 0 < seconds <= LONGEST_S:
        raise ValueError(f"{shortened(text)} is not a duration between 0 and a year; write 90, 90s, 1.5m or 2h")
    return seconds


def items_of(text: str) -> list[str]:
    """What stands between the commas of ``text``, without what is empty."""
    return [item.strip() for item in text.split(",") if item.strip()]


def number(text: str) -> int | float:
    """A whole number or a decimal one. ValueError for anything else, infinity, and more than 2**53."""
    try:
        value = int(text) if len(text) < 20 else float(text)
    except ValueError:
        value = float(text)
    if not abs(value) <= LARGEST:
        raise ValueError(f"{shortened(text)} is beyond {LARGEST}")
    return value


def shortened(value: object, *, most: int = 60) -> str:
    """``value`` as a message quotes it, in one line of at most ``most`` characters."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 4]}..{text[-1]}"
