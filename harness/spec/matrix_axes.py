"""The axes of a matrix: their values, what each does, and the cells that ``{n_layers: ">=5"}`` or ``fa2=1`` means."""

from __future__ import annotations

import operator
import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from harness.core.command_line import PYTHON, placeholders, starts_interpreter
from harness.core.errors import CommandError, FileError, SpecError, suggestion
from harness.core.point import Axis, AxisType, Value, size_of, word_of
from harness.core.space import BASELINE, Bundle, Factor, Selector
from harness.spec.axes import MOST_VALUES, setting
from harness.store.redact import redact_text, secrets
from harness.trainer import NoTrainerError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from harness.core.command_line import Placeholder
    from harness.core.matrix import Matrix
    from harness.core.point import Point
    from harness.core.space import Space
    from harness.spec.yaml_file import Lines


OPERATORS = {">=": operator.ge, "<=": operator.le, "!=": operator.ne, ">": operator.gt, "<": operator.lt}
_COMPARISON = re.compile(r"\s*(>=|<=|!=|>|<)\s*(\S+)\s*")


@contextmanager
def at(place: str) -> Generator[None]:
    """Errors from within begin with ``place``, unless they name a line of the file already."""
    try:
        yield
    except NoTrainerError:  # nothing is wrong with the file
        raise
    except (SpecError, ValueError) as error:
        message = str(error)
        has_place = message.startswith(f"{place.rpartition(':')[0]}:")
        raise FileError(message if has_place else f"{place}: {message}") from error


def factor_of(name: str, keys: Any, *, command: Sequence[str], lines: Lines) -> Factor:
    """The axis called ``name`` as its keys in the file describe it; ``command`` is empty for our own trainer."""
    target = "command" if command else "nsa"
    places = places_of(command) if command else None
    with at(lines.place("axes", name)):
        kind, values = AxisType(keys.type), _values(name, keys)
        where = "values" if keys.values is not None else "range"
        with at(lines.place("axes", name, where)):
            axis = Axis(name=name, path=_path(name, keys, places), type=kind, values=values)
    with at(lines.place("axes", name, "good")):
        good = value_of(axis, values[0] if keys.good is None else keys.good)
    with at(lines.place("axes", name, "bad")):
        bad = value_of(axis, values[-1] if keys.bad is None else keys.bad)
    with at(lines.place("axes", name, "apply")):
        factor = Factor(
            axis=axis, good=good, bad=bad, priority=keys.priority, bundles=_bundles(axis, keys.apply, target)
        )
        if command:
            prove_interpreter(factor, command)
    with at(lines.place("axes", name, where)):
        prove_distinct_when_hidden(factor)
    return factor


def places_of(command: Sequence[str]) -> dict[str, Placeholder]:
    """The places of a command line, by name."""
    return {place.name: place for place in placeholders(command)}


def prove_interpreter(factor: Factor, command: Sequence[str]) -> None:
    """CommandError where ``factor`` names interpreters and ``command``, of another program, starts none of them."""
    if any(bundle.python for bundle in factor.bundles) and not starts_interpreter(command):
        raise CommandError(
            f"axis {factor.name!r} has no place in the command; write {{{PYTHON}}} where its interpreter belongs, e.g. "
            f"{{{PYTHON}}} train.py"
        )


def prove_distinct_when_hidden(factor: Factor) -> None:
    """SpecError where two values are secrets: what is written down of both is the same, so no cell could be named."""
    variables = [pair for bundle in factor.bundles for pair in bundle.env]
    hidden = secrets(variables)
    values = [redact_text(value, values=hidden) for value in factor.axis.values if isinstance(value, str)]
    if len(set(values)) < len(values):
        variable = next((name for name, value in variables if value in hidden), "NAME")
        raise SpecError(
            f"axis {factor.name!r} lists secrets, which are written down nowhere, so its cells could not be told "
            f"apart; list names, values: [first, second], and let each name its secret in a matrix file, "
            f"apply: {{map: {{first: {{env: {{{variable}: ..}}}}, ..}}}}, or let the program look it up by that name"
        )


def value_of(axis: Axis, raw: Any) -> Value:
    """``raw`` as this axis holds it: a flag takes 0, 1, true and false; a number may be spelled in another way.

    Raises:
        SpecError: not a value of the axis; the message has the nearest one.
    """
    if axis.type is AxisType.FLAG and raw in (0, 1):
        return bool(raw)
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise SpecError(f"{raw!r} is not a value of axis {axis.name!r}; it has {_listed(axis)}")
    if raw not in axis.values:
        alike = [value for value in axis.values if size_of(raw) is not None and size_of(value) == size_of(raw)]
        if len(alike) == 1:
            return alike[0]
        near = suggestion(word_of(raw), map(word_of, axis.values))
        raise SpecError(f"{raw!r} is not a value of axis {axis.name!r}{near}; it has {_listed(axis)}")
    return axis.values[axis.index(raw)]


def typed_value(axis: Axis | None, word: str) -> Value:
    """``word`` as a value of ``axis``; as it stands when it is none, so that the error can name it."""
    if axis is None:
        return word
    if axis.type is AxisType.FLAG:
        return {"0": False, "1": True, "false": False, "true": True}.get(word.lower(), word)
    for value in axis.values:
        if word in (word_of(value), str(value)):
            return value
    return word


def selector_of(conditions: Mapping[str, Any], axes: Mapping[str, Axis]) -> Selector:
    """``{n_layers: ">=5", parallel: [ddp, fsdp], fa2: 1}`` as the values that each axis may have.

    Raises:
        SpecError: an unknown axis or value, with the nearest, or a comparison that no value satisfies.
    """
    terms: list[tuple[str, tuple[Value, ...]]] = []
    texts: list[str] = []
    for name, condition in conditions.items():
        terms.append((name, _selected(axis_of(name, axes), condition)))
        texts.append(f"{name}{_written(condition)}")
    return Selector(terms=tuple(terms), text=", ".join(texts))


def cell_of(settings: Mapping[str, Any], axes: Mapping[str, Axis]) -> dict[str, Value]:
    """One value for each axis that is named.

    Raises:
        SpecError: an unknown axis or value, with the nearest.
    """
    for name in settings:
        axis_of(name, axes)
    return {name: value_of(axes[name], value) for name, value in settings.items()}


def axes_of(factors: Iterable[Factor]) -> dict[str, Axis]:
    """The axes by name."""
    return {factor.name: factor.axis for factor in factors}


def axis_of(name: str, axes: Mapping[str, Axis]) -> Axis:
    """The axis called ``name``; SpecError with the nearest where there is none."""
    if name not in axes:
        raise SpecError(f"unknown axis {name!r}{suggestion(name, axes)}; there are {', '.join(axes)}")
    return axes[name]


def _selected(axis: Axis, condition: Any) -> tuple[Value, ...]:
    if isinstance(condition, list):
        if not condition:
            raise SpecError(f"axis {axis.name!r}: an empty list selects nothing; it has {_listed(axis)}")
        return tuple(value_of(axis, item) for item in cast("list[Any]", condition))
    match = _COMPARISON.fullmatch(condition) if isinstance(condition, str) and condition not in axis.values else None
    if match is None:
        return (value_of(axis, condition),)
    if axis.type is not AxisType.ORDERED:
        raise SpecError(f"axis {axis.name!r} is {axis.type}, so {condition!r} means nothing; list the values instead")
    try:
        bound = float(match[2])
    except ValueError:
        raise SpecError(f"{condition!r}: {match[2]!r} is not a number") from None
    values = tuple(v for v in axis.values if (size := axis.size(v)) is not None and OPERATORS[match[1]](size, bound))
    if not values:
        raise SpecError(f"no value of axis {axis.name!r} is {condition}; it has {_listed(axis)}")
    return values


def _written(condition: Any) -> str:
    if isinstance(condition, list):
        return "=" + "|".join(map(word_of, cast("list[Any]", condition)))
    is_comparison = isinstance(condition, str) and _COMPARISON.fullmatch(condition)
    return str(condition) if is_comparison else f"={word_of(condition)}"


def _values(name: str, keys: Any) -> tuple[Value, ...]:
    if keys.type == "flag":
        if keys.values is not None or keys.range is not None:
            raise SpecError(f"axis {name!r} is a flag: it has the values false and true, leave them out")
        return (False, True)
    if (keys.values is None) == (keys.range is None):
        raise SpecError(f"axis {name!r} needs either values: [..] or range: [first, last]")
    return _plain_values(name, keys.values) if keys.range is None else _ranged(name, *keys.range)


def _ranged(name: str, first: int, last: int) -> tuple[Value, ...]:
    if not 0 <= last - first < MOST_VALUES:
        raise SpecError(f"axis {name!r}: range [{first}, {last}] must ascend and have at most {MOST_VALUES} values")
    return tuple(range(first, last + 1))


def _plain_values(name: str, values: Sequence[Any]) -> tuple[Value, ...]:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise SpecError(f"axis {name!r}: {value!r} is no number or word; yes and no are words, true is a flag's")
    return tuple(values)


def _path(name: str, keys: Any, places: Mapping[str, Placeholder] | None) -> str:
    if keys.apply is not None:
        return keys.apply.config or ""
    if places is None:
        return setting(name).path
    if name not in places:
        option = f"--{name.replace('_', '-')}"
        raise SpecError(
            f"axis {name!r} needs its place in the command, {{{name}}} or {{{name}:{option}}}, or apply: "
            f"{{arg: {option}}}, env or map"
        )
    if places[name].is_flag != (keys.type == "flag"):
        is_not = "is no flag" if places[name].is_flag else f"is a flag; write {{{name}:--{name.replace('_', '-')}}}"
        raise SpecError(f"axis {name!r} {is_not}, but the command has a place of the other kind for it")
    return f"args.{name}"


def _bundles(axis: Axis, apply: Any, target: str) -> tuple[Bundle, ...]:
    if apply is not None:
        kinds = ("arg", "env", "config", "python", "commit", "map")
        keys = [kind for kind in kinds if getattr(apply, kind) is not None]
        if len(keys) != 1:
            raise SpecError(f"apply needs exactly one of {', '.join(kinds)}, got {', '.join(keys) or 'none'}")
        if apply.map is not None:
            return _mapped(axis, apply.map, target)
    return tuple(_applied(axis, apply, value, target) for value in axis.values)


def _applied(axis: Axis, apply: Any, value: Value, target: str) -> Bundle:
    """What one value of an axis does, where all of them do the same kind of thing."""
    if apply is None:
        return _config(axis.path, value) if target == "nsa" else Bundle(config=((axis.path, value),))
    if apply.config is not None:
        return bundle_of({apply.config: value}, {}, [], target=target)
    if apply.env is not None:
        return bundle_of({}, {apply.env: value}, [], target=target)
    if apply.python is not None:
        return Bundle(python=_filled(apply.python, value))
    if apply.commit is not None:
        return Bundle(commit=_filled(apply.commit, value))
    return bundle_of({}, {}, _arguments(axis, apply.arg, value), target=target)


def _arguments(axis: Axis, option: str, value: Value) -> list[str]:
    if axis.type is AxisType.FLAG:
        return [option] if value else []
    return [_filled(option, value)] if "{value}" in option else [option, _text(value)]


def _filled(template: str, value: Value) -> str:
    if "{value}" not in template:
        raise SpecError(f"{template!r} would be the same for every value; write {{value}} where the value belongs")
    return template.replace("{value}", _text(value))


def _mapped(axis: Axis, table: Mapping[Any, Any], target: str) -> tuple[Bundle, ...]:
    # Keys of a YAML mapping may be written "0" or 0; a value is meant either way.
    by_value: dict[Value, Bundle] = {}
    texts = {str(value): value for value in axis.values}
    for key, keys in table.items():
        plain = axis.type is not AxisType.FLAG and not isinstance(key, bool) and key not in axis.values
        value = value_of(axis, texts.get(str(key), key) if plain else {"0": 0, "1": 1}.get(str(key), key))
        bundle = bundle_of(keys.config, keys.env, keys.args, target=target)
        by_value[value] = replace(bundle, python=keys.python, commit=keys.commit)
    bundles: list[Bundle] = []
    missing: list[str] = []
    for value in axis.values:
        if value in by_value:
            bundles.append(by_value[value])
        else:
            missing.append(word_of(value))
    if missing:
        raise SpecError(f"map says nothing for {', '.join(missing)}; write {missing[0]}: {{}} if it changes nothing")
    return tuple(bundles)


def bundle_of(config: Mapping[str, Any], env: Mapping[str, Any], args: list[str], *, target: str) -> Bundle:
    """What a value does, with every setting checked against the trainer's own table.

    Raises:
        SpecError: arguments for our own trainer, settings for another program, or a setting that does not exist.
    """
    if args and target == "nsa":
        raise SpecError(f"the target nsa takes settings, not arguments such as {args[0]}; use apply: {{config: path}}")
    if config and target != "nsa":
        raise SpecError(f"only the target nsa has settings such as {next(iter(config))}; use arg, env or map")
    settings: list[tuple[str, Value]] = []
    for path, value in config.items():
        settings += _config(path, value).config
    return Bundle(
        args=tuple(args),
        env=tuple((name, _text(value)) for name, value in env.items()),
        config=tuple(settings),
    )


def _config(path: str, value: Any) -> Bundle:
    where = setting(path)
    return Bundle(config=((where.path, where.checked(value)),))


def _text(value: Any) -> str:
    """``value`` as a program gets it, where a variable is mostly 1 or 0."""
    return word_of(int(value) if isinstance(value, bool) else value)


def _listed(axis: Axis) -> str:
    values = list(map(word_of, axis.values))
    return ", ".join(values) if len(values) <= 12 else f"{', '.join(values[:3])} .. {values[-1]}"


_TERM = re.compile(r"\s*(?P<name>[^\s<>=!]+)\s*(?P<op>>=|<=|!=|==|>|<|=)\s*(?P<value>.+?)\s*")


def parse_cell(text: str, space: Space) -> Point:
    """The cell that ``text`` names: ``n_layers=5,attention=nsa``, every other axis at its good value.

    ``baseline`` (or ``good``, or nothing) has every good value, ``bad`` every bad one.

    Raises:
        SpecError: no such axis or value, with the nearest, or a cell that breaks a rule.
    """
    axes = axes_of(space.factors)
    if text.strip() in ("", "good", BASELINE, "bad"):
        cell = space.bad if text.strip() == "bad" else space.good
    else:
        values: dict[str, Value] = {}
        for match in _terms(text, ("=", "==")):
            name = match["name"]
            values[name] = typed_value(axes.get(name), match["value"])
        cell = space.cell(cell_of(values, axes))
    rule = space.broken(cell)
    if rule is not None:
        raise SpecError(f"cell {space.name_of(cell)} breaks a rule: {rule}")
    return cell


def parse_selector(texts: Iterable[str], space: Space) -> Selector:
    """The cells for which all of ``texts`` hold: ``n_layers>=5``, ``attention=nsa|dense``, ``fa2=1``.

    Raises:
        SpecError: no such axis or value, with the nearest.
    """
    axes, terms = axes_of(space.factors), dict[str, object]()
    for text in texts:
        for match in _terms(text, None):
            name, op, value = match["name"], match["op"], match["value"]
            axis = axes.get(name)
            if op in ("=", "=="):
                parts = [typed_value(axis, part) for part in value.split("|")]
                terms[name] = parts[0] if len(parts) == 1 else parts
            else:
                terms[name] = f"{op}{value}"
    return selector_of(terms, axes)


def chosen_cells(
    matrix: Matrix, planned: Iterable[Point], *, cells: Iterable[str], only: Sequence[str], gpus: int | None
) -> tuple[Point, ...]:
    """The cells that ``--cell``, ``--only`` and ``--gpus`` choose, which a shard is a part of; else those ``planned``.

    Raises:
        SpecError: no such axis or value, or a cell that breaks a rule.
    """
    by_name = [parse_cell(text, matrix.space) for text in cells]
    if by_name and not only:
        return tuple(by_name)
    selector = parse_selector(only, matrix.space)
    chosen = dict.fromkeys(by_name)
    for cell in planned:
        is_as_large = gpus is None or matrix.gpus_at(cell) == gpus
        if is_as_large and selector.holds(dict(cell)):
            chosen[cell] = None
    return tuple(chosen)


def shard_of(cells: Sequence[Point], number: int, shards: int) -> tuple[Point, ...]:
    """Every ``shards``-th cell from the ``number``-th on, so that neighbours, which cost alike, are spread."""
    return tuple(cells[number - 1 :: shards])


def parse_shard(text: str) -> tuple[int, int]:
    """``2/3`` as its two numbers.

    Raises:
        SpecError: it is not K/N.
    """
    number, slash, shards = text.partition("/")
    if not slash or not number.isdigit() or not shards.isdigit() or not 1 <= int(number) <= int(shards):
        raise SpecError(f"--shard {text!r} is not K/N; write for example 1/4")
    return int(number), int(shards)


def _terms(text: str, allowed: tuple[str, ...] | None) -> list[re.Match[str]]:
    matches: list[re.Match[str]] = []
    for part in text.split(","):
        match = _TERM.fullmatch(part)
        if match is None or (allowed is not None and match["op"] not in allowed):
            raise SpecError(f"{part.strip()!r} is not axis=value; write for example n_layers=5,attention=nsa")
        matches.append(match)
    return matches
