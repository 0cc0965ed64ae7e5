"""What strangers say, as a terminal and a page may have it."""

from __future__ import annotations

import re

_CONTROL = (
    r"(?:\x1b\[|\x9b)[0-9;?]*[ -/]*[@-~]"  # colours, cursor, screen
    r"|(?:\x1b[\]P^_X]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, device commands
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\U000e0000-\U000e007f]"
    r"|[\ud800-\udfff]"
)


def clean(text: str) -> str:
    """``text`` without what repaints a screen, or shows letters in another order than they are in."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    # Compiling the pattern is a twentieth of a command's start, and nearly every text is as it should be.
    return lines if lines.replace("\n", "").replace("\t", "").isprintable() else re.sub(_CONTROL, "", lines)
