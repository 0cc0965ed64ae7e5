"""The effective configuration: defaults, then a file, then the environment, then the command line, each value sourced.

A file is YAML (JSON is YAML as well) with the sections of ``nsa.config.RunConfig``; a name without a slash or a
suffix is one of the configurations that come with the package (``nsa/configs``).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsa.config import RunConfig, Value, suggestion
from nsa.env import read_environment
from nsa.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """A configuration, and for every setting where its value came from."""

    config: RunConfig
    sources: Mapping[str, str]

    def lines(self, *, only_changed: bool = False) -> Iterator[str]:
        """``model.n_layers = 2  (--override)``, one line per setting in the order of the tree."""
        for path, source in self.sources.items():
            if not only_changed or source != DEFAULT:
                yield f"{path} = {self.config.value(path)!r}  ({source})"


def effective(
    file: str | None = None, *, overrides: Iterable[str] = (), environ: Mapping[str, str] | None = None
) -> Effective:
    """Build the configuration from all its sources; the later one wins.

    Args:
        file: a path, or the name of a configuration that comes with the package; defaults alone if None.
        overrides: texts of ``path=value`` words, such as ``"train.steps=10 model.n_layers=2"``.
        environ: the process's own environment if None.

    Raises:
        ConfigError: an unreadable file, an unknown key, a value of the wrong type, or values that do not fit.
    """
    values: dict[str, Value] = {}
    sources = dict.fromkeys(RunConfig.paths(), DEFAULT)
    for path, value, source in _all_changes(file, overrides, environ):
        values[path], sources[path] = value, source
    return Effective(config=RunConfig().with_values(values), sources=sources)


def names() -> tuple[str, ...]:
    """The configurations that come with the package."""
    folder = files("nsa") / "configs"
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def _all_changes(
    file: str | None, overrides: Iterable[str], environ: Mapping[str, str] | None
) -> Iterator[tuple[str, Value, str]]:
    if file is not None:
        yield from _from_file(file)
    for change in read_environment(environ):
        yield change.path, change.value, f"{change.name}={change.text}"
    for text in overrides:
        for path, value in parse_override(text):
            yield path, value, "--override"


def parse_override(text: str) -> Iterator[tuple[str, Value]]:
    """The settings in ``"train.steps=10 model.n_layers=2"``, in the order written.

    Raises:
        ConfigError: a word without ``=``, an unknown path, or a value of the wrong type.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"cannot read --override {text!r}: {error}") from error
    for word in words:
        path, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"--override {word!r} has no value; write path=value, as in model.n_layers=2")
        yield path, RunConfig.path(path).parsed(value)


def _from_file(file: str) -> Iterator[tuple[str, Value, str]]:
    """Every setting in the file, with ``file:line``."""
    name, text = _read(file)
    tree = _parsed(name, text)
    for section, settings in tree.items():
        if not hasattr(settings, "items"):
            raise ConfigError(f"{name}: section {section!r} must be a mapping, got {type(settings).__name__}")
        for key, value in settings.items():
            where = f"{name}:{settings.lc.key(key)[0] + 1}"
            try:
                setting = RunConfig.path(f"{section}.{key}")
                yield setting.path, setting.checked(_plain(value)), where
            except ConfigError as error:
                raise ConfigError(f"{where}: {error}") from error


def _read(file: str) -> tuple[str, str]:
    """A short name for the file, and its text."""
    is_name = "/" not in file and not Path(file).suffix
    try:
        if is_name and file not in names():
            raise ConfigError(f"unknown configuration {file!r}; {suggestion(file, names())}; or give a path")
        source = files("nsa") / "configs" / f"{file}.yaml" if is_name else Path(file)
        return source.name, source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot read {file}: {reason}; give a YAML file of settings") from error


def _parsed(name: str, text: str) -> Mapping[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        tree = YAML(typ="rt").load(text)
    except YAMLError as error:
        raise ConfigError(f"{name} is not YAML: {error}") from error
    if tree is None:
        return {}
    if not hasattr(tree, "items"):
        raise ConfigError(f"{name}: a run configuration is a mapping of sections, got {type(tree).__name__}")
    return tree


def _plain(value: object) -> object:
    """The value without what ruamel keeps to write the file again (a float remembers how it was written)."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value
