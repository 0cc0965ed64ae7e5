"""NextStep: one thing to do next."""

from __future__ import annotations

from dataclasses import dataclass

ANSWERED = "Nothing: the question is answered."
"""What stands where there is no next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """Something to do, what it would tell, and the command for it where there is one."""

    text: str
    command: tuple[str, ...] = ()
