"""A simulated program over the cells of a matrix: fails where one of its causes holds, as often as it is told to."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from harness.core.verdict import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.core.point import Point, Value
    from harness.core.ports import CellRequest


class Asking(Protocol):
    """The half of a cell strategy that a program needs to answer it."""

    def ask(self) -> CellRequest | None:
        """The next question."""
        ...

    def tell(self, *, cell: Point, answer: Answer, seconds: float) -> None:
        """Its answer."""
        ...


@dataclass
class CellProgram:
    """Fails at ``rate`` wherever one of ``causes`` holds; gives no answer where ``mute`` does.

    Any trial fails for no reason of its own at the rate ``false``, in one cell never again within ``apart`` trials.
    """

    causes: tuple[Callable[[Mapping[str, Value]], bool], ...]
    rate: float = 1.0
    mute: Callable[[Mapping[str, Value]], bool] = lambda _: False
    pass_s: float = 2.0
    fail_s: float = 60.0
    seed: int = 0
    false: float = 0.0
    apart: int = 1
    random: random.Random = field(init=False)
    calm: dict[Point, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def can_fail(self, cell: Point) -> bool:
        """Whether one of the causes holds."""
        settings = dict(cell)
        return any(cause(settings) for cause in self.causes)

    def run(self, cell: Point) -> tuple[Answer, float]:
        """The answer of one trial, and its seconds."""
        if self.mute(dict(cell)):
            return Answer.UNRESOLVED, self.pass_s
        calm = self.calm.get(cell, 0)
        self.calm[cell] = max(calm - 1, 0)
        if self.can_fail(cell) and self.random.random() < self.rate:
            return Answer.BAD, self.fail_s
        if self.false and not calm and self.random.random() < self.false:
            self.calm[cell] = self.apart - 1
            return Answer.BAD, self.fail_s
        return Answer.GOOD, self.pass_s

    def play(self, search: Asking, *, most: int = 100_000) -> list[tuple[CellRequest, Answer]]:
        """Answer ``search`` until it has no more questions; what was asked, with the answers."""
        told: list[tuple[CellRequest, Answer]] = []
        while (request := search.ask()) is not None and len(told) < most:
            answer, seconds = self.run(request.cell)
            told.append((request, answer))
            search.tell(cell=request.cell, answer=answer, seconds=seconds)
        return told
