"""Matrix: many cells as one file asks for them, with limits, expectations, signatures and searches beside them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum

from harness.core.point import Point, Value
from harness.core.space import Bundle, Selector, Space
from harness.core.spec import Effort, Limits
from harness.core.success import PASSES, Success
from harness.core.trial import Fault
from harness.core.verdict import Kind

EVERYWHERE = Selector()
NOTHING = Bundle()
LEARNED = Limits()
DEFAULT_EFFORT = Effort()


class MatrixStrategy(StrEnum):
    """Which cells of a matrix are run."""

    FULL = "full"
    ONE_FACTOR = "one-factor"
    PAIRWISE = "pairwise"
    LIST = "list"


class SearchKind(StrEnum):
    """What a search beside a matrix looks for."""

    BISECT = "bisect"
    MINIMISE = "minimise"
    EXPLORE = "explore"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsWhen:
    """Other limits where ``when`` holds; the last one that holds wins, limit by limit."""

    when: Selector
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one trial occupies."""

    gpus: int = 0
    when: Selector = EVERYWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureSpec:
    """A failure by name: its kind and, where given, what its output and its stack must show."""

    name: str
    kind: Kind
    log: str | None = None
    stack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What the cells in ``when`` are expected to end in, since when and until when that holds.

    ``strict`` makes an unexpected pass a failure too; ``rate`` is how often it fails; ``seconds`` is how long such a
    cell is known to take when it passes.
    """

    when: Selector
    kind: Kind
    signature: str | None = None
    issue: str = ""
    since: dt.date | None = None
    until: dt.date | None = None
    strict: bool = False
    rate: float = 1.0
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEntry:
    """A search that lives beside the matrix. ``fixed`` are axes held away from their good value.

    ``bad_kinds`` are what counts as failing where no signature is named; empty for the first failure that shows up.
    """

    name: str
    kind: SearchKind
    axis: str | None = None
    fixed: tuple[tuple[str, Value], ...] = ()
    signature: str | None = None
    bad_kinds: tuple[Kind, ...] = ()
    strength: int = 2
    causes: int = 1


class Asks(StrEnum):
    """What a matrix may be asked: whether cells ever fail so, whether each of them does, whether an axis matters."""

    EVER = "ever"
    ALWAYS = "always"
    MATTERS = "matters"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixQuestion:
    """One question to a matrix, and the two sentences one of which its trials decide for.

    ``when`` limits it to some cells, ``kinds`` to some failures (none named: any), ``cause`` to one cause, ``phase`` to
    failures in it, which a trial must have reached to say no. MATTERS compares the pairs that differ in ``axis`` alone.
    """

    asks: Asks
    yes: str
    no: str
    axis: str = ""
    when: Selector = EVERYWHERE
    kinds: tuple[Kind, ...] = ()
    cause: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A whole matrix file. ``base`` holds in every cell; ``command`` is empty for our own trainer.

    ``fault`` is planted where its conditions, on axes or settings, hold.
    """

    name: str
    space: Space
    description: str = ""
    incident: tuple[str, ...] = ()
    asks: tuple[MatrixQuestion, ...] = ()
    target: str = "nsa"
    command: tuple[str, ...] = ()
    base: Bundle = NOTHING
    fault: Fault | None = None
    strategy: MatrixStrategy = MatrixStrategy.LIST
    strength: int = 2
    include: tuple[Point, ...] = ()
    limits: Limits = LEARNED
    limits_when: tuple[LimitsWhen, ...] = ()
    resources: tuple[Resources, ...] = ()
    success: Success = PASSES
    signatures: tuple[SignatureSpec, ...] = ()
    expect: tuple[Expectation, ...] = ()
    passes: int = 1
    infra_retries: int = 2
    effort: Effort = DEFAULT_EFFORT
    gpu_seconds: float | None = None
    searches: tuple[SearchEntry, ...] = ()
    tags: tuple[str, ...] = ()

    def bundle(self, cell: Point) -> Bundle:
        """Everything that ``cell`` changes: the base first, then each axis in the order of the file."""
        settings = dict(cell)
        args, env, config = list(self.base.args), dict(self.base.env), dict(self.base.config)
        python, commit = self.base.python, self.base.commit
        for factor in self.space.factors:
            bundle = factor.bundles[factor.axis.index(settings[factor.name])]
            args += bundle.args
            env.update(bundle.env)
            config.update(bundle.config)
            python, commit = bundle.python or python, bundle.commit or commit
        return Bundle(
            args=tuple(args), env=tuple(env.items()), config=tuple(config.items()), python=python, commit=commit
        )

    def limits_at(self, cell: Point) -> Limits:
        """The limits that hold in ``cell``."""
        settings, limits = dict(cell), self.limits
        for row in self.limits_when:
            if row.when.holds(settings):
                limits = row.limits.over(limits)
        return limits

    def gpus_at(self, cell: Point) -> int:
        """The GPUs that one trial of ``cell`` occupies."""
        settings = dict(cell)
        for row in reversed(self.resources):
            if row.when.holds(settings):
                return row.gpus
        return 0

    def expected(self, cell: Point) -> Expectation | None:
        """What ``cell`` is expected to end in; the last expectation that speaks of it wins."""
        settings = dict(cell)
        for row in reversed(self.expect):
            if row.when.holds(settings):
                return row
        return None
