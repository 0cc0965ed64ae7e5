"""Recall: a question whose secrets were kept off the disk, with those values that the environment still has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from harness.core.codec import from_json, to_json
from harness.core.errors import NoSecretError
from harness.store.redact import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.campaign import CampaignSpec


def recalled(question: CampaignSpec, environ: Mapping[str, str]) -> CampaignSpec:
    """``question`` with the value of every hidden variable taken from ``environ``.

    Raises:
        NoSecretError: it is not there; to go on with another value would be another question.
    """
    data = to_json(question)
    missing = sorted(_hidden(data).difference(environ))
    if missing:
        words = " ".join(f"{name}=.." for name in missing)
        raise NoSecretError(
            f"{', '.join(missing)} was set for this run's trials and is written down nowhere; "
            f"to go on, set it in the environment: {words} nsa-harness .. --resume"
        )
    filled = _filled(data, environ)
    if HIDDEN in json.dumps(filled):
        raise NoSecretError(
            "a part of this run's command line is a secret and is written down nowhere; give it by a variable of the "
            "environment, where a run can be continued"
        )
    return from_json(type(question), filled)


def _hidden(data: Any) -> set[str]:
    """The names of variables whose value was hidden."""
    if _is_hidden_pair(data):
        return {str(data[0])}
    if isinstance(data, dict):
        return _hidden(list(cast("dict[str, Any]", data).values()))
    parts = cast("list[Any]", data) if isinstance(data, list) else []
    return set[str]().union(*map(_hidden, parts))


def _filled(data: Any, environ: Mapping[str, str]) -> Any:
    if _is_hidden_pair(data):
        return [data[0], environ[data[0]]]
    if isinstance(data, dict):
        return {key: _filled(part, environ) for key, part in cast("dict[str, Any]", data).items()}
    return [_filled(part, environ) for part in cast("list[Any]", data)] if isinstance(data, list) else data


def _is_hidden_pair(data: Any) -> bool:
    items = cast("list[Any]", data) if isinstance(data, list) else []
    return len(items) == 2 and items[1] == HIDDEN
