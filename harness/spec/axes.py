"""AXES: the settings a search may vary, and the grammar of ``--axis``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.core.errors import SpecError, UnknownSettingError, unknown
from harness.core.point import Axis, AxisType, as_typed, ascend
from harness.spec.amounts import number, shortened
from harness.trainer import run_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nsa.config import ConfigPath

MOST_VALUES = 4096
_RANGE = re.compile(r"(?P<low>[^.*]+(?:\.\d+)?)\.\.(?P<high>[^*]+?)(?:\*(?P<factor>.+))?")


def _axis(name: str, path: str, values: str, *, help: str, unit: str = "") -> Axis:
    numbers = _expanded(name, values.split(","))
    return Axis(name=name, path=path, type=AxisType.ORDERED, values=numbers, unit=unit, help=help)


def setting(name: str) -> ConfigPath:
    """The setting that ``name`` means: an axis, a dotted path, or the last part of one where that is unique.

    Raises:
        UnknownSettingError: no such setting; the message suggests the nearest and lists all.
    """
    paths = run_config().paths()
    if name in AXES:
        return paths[AXES[name].path]
    if name in paths:
        return paths[name]
    ends = [path for path in paths if path.rpartition(".")[2] == name]
    if len(ends) == 1:
        return paths[ends[0]]
    raise unknown("setting", name, {*AXES, *paths}, error=UnknownSettingError)


def parse_axis(text: str) -> Axis:
    """The axis that ``text`` names, with the table's values or its own.

    ``n_layers``, ``n_layers=1..12``, ``n_layers=1,2,4,8`` (parts mix: ``1..4,8``), ``seq_len=128..2048*2`` (each
    value twice the one before). Any other numeric setting works too when its values are given:
    ``model.d_v=8,16,32``.

    Raises:
        SpecError: an unknown axis, a value that the setting cannot hold, or values that do not ascend.
    """
    name, equals, values = map(str.strip, text.partition("="))
    if not equals and name in AXES:
        return AXES[name]
    if name not in AXES and name not in run_config().paths():
        raise unknown("axis", name, AXES, error=UnknownSettingError)
    row = AXES.get(name)
    where = setting(name)
    if where.type not in (int, float):
        raise SpecError(f"{where.path} is no number, so it has no order to search along; hold it fixed instead")
    if not values:
        raise SpecError(f"axis {name!r} needs values, e.g. {name}={where.default},{_example(where)}")
    numbers = _expanded(name, map(str.strip, values.split(",")))
    return Axis(
        name=name,
        path=where.path,
        type=AxisType.ORDERED,
        values=tuple(_checked(where, number) for number in numbers),
        unit=row.unit if row else "",
        help=row.help if row else where.meaning,
    )


def numbers_of(name: str, items: Sequence[str]) -> tuple[int | float | str, ...] | None:
    """The numbers that all of ``items`` (``4``, ``1..12``, ``128..2048*2``) stand for; None where they are words.

    Each that is listed stays as it was typed. Where they do not ascend they are words too, in an order of their own.

    Raises:
        SpecError: a range among words, or one that runs down or does not reach its end.
    """
    numeric: list[str] = []
    words: list[str] = []
    for item in items:
        (numeric if _is_numeric(item) else words).append(item)
    ranges = [item for item in numeric if ".." in item]
    if words and ranges:
        first, word = numeric[0], words[0]
        raise SpecError(f"axis {name!r} has numbers from {first} and the word {word!r}; list all of its values")
    if words:
        return None
    values: list[int | float | str] = []
    for item in items:
        values += _expand(name, item) if item in ranges else [as_typed(item)]
    if ascend(tuple(values)):
        return tuple(values)
    if ranges:
        raise SpecError(f"axis {name!r} does not ascend; write its smallest value first, or list all in their order")
    return None


def _is_numeric(item: str) -> bool:
    try:
        parts = [item] if (match := _RANGE.fullmatch(item)) is None else list(filter(None, match.groups()))
        for part in parts:
            number(part)
    except ValueError:
        return False
    return True


def _expanded(name: str, items: Iterable[str]) -> tuple[int | float, ...]:
    """The numbers that ``items`` stand for, one after the other."""
    numbers: list[int | float] = []
    for item in items:
        numbers += _expand(name, item)
    return tuple(numbers)


def _expand(name: str, item: str) -> list[int | float]:
    match = _RANGE.fullmatch(item)
    if match is None:
        return [_number(name, item)]
    low, high = _number(name, match["low"]), _number(name, match["high"])
    if low > high:
        raise SpecError(f"axis {name!r}: {item} runs down; write it upwards, e.g. {high}..{low}")
    if match["factor"] is None:
        return _steps(name, item, low, high)
    return _products(name, item, low, high, _number(name, match["factor"]))


def _products(name: str, item: str, low: float, high: float, factor: float) -> list[int | float]:
    """``128..2048*2``: each value ``factor`` times the one before it."""
    if factor <= 1 or low <= 0:
        raise SpecError(f"axis {name!r}: {item} does not grow; use a start above 0 and a factor above 1")
    values = [low]
    while values[-1] < high and len(values) <= MOST_VALUES:
        values.append(values[-1] * factor)
    if values[-1] != high:
        before, after = values[-2:]
        near = f"{before:g}, {after:g}"
        raise SpecError(f"axis {name!r}: {item} does not reach {high}; the steps nearest to it are {near}")
    return values


def _steps(name: str, item: str, low: float, high: float) -> list[int | float]:
    if not (isinstance(low, int) and isinstance(high, int)):
        raise SpecError(f"axis {name!r}: {item} needs whole numbers; list others one by one, or use low..high*factor")
    if high - low >= MOST_VALUES:
        raise SpecError(f"axis {name!r}: {item} has {high - low + 1} values; {MOST_VALUES} are the most")
    return list(range(low, high + 1))


def _number(name: str, text: str) -> int | float:
    try:
        return number(text)
    except ValueError as error:
        raise SpecError(
            f"axis {name!r}: {shortened(text)} is not a number up to 2**53; "
            f"write {name}=1..12, {name}=1,2,4 or {name}=128..2048*2"
        ) from error


def _checked(where: ConfigPath, number: float) -> int | float:
    try:
        where.checked(number)
    except ValueError as error:
        raise SpecError(str(error)) from error
    return number


def _example(where: ConfigPath) -> str:
    return f"{where.default * 2:g}" if isinstance(where.default, int | float) else ""


AXES: dict[str, Axis] = {
    row.name: row
    for row in (
        _axis("n_layers", "model.n_layers", "1..12", help="decoder blocks"),
        _axis("seq_len", "train.seq_len", "64..2048*2", unit="tokens", help="tokens in a sequence"),
        _axis("batch_size", "train.batch_size", "1..32*2", help="sequences in a step"),
        _axis("dim", "model.dim", "32..512*2", help="width of the residual stream"),
        _axis("n_heads", "model.n_heads", "2..16*2", help="query heads; a multiple of model.n_kv_groups"),
        _axis("w", "model.w", "16..512*2", unit="tokens", help="keys in the sliding window"),
        _axis("n", "model.n", "3..16", unit="blocks", help="selected blocks per query"),
        _axis("l_slc", "model.l_slc", "8..64*2", unit="tokens", help="selection block; a multiple of model.d"),
        _axis("steps", "train.steps", "1,2,5,10,20,50,100", help="optimizer steps: failures that need time to show"),
    )
}
"""Axes by name. All are ordered, and larger is taken to be worse."""
