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
    hidden: set[str] = set()
    filled = _filled(to_json(question), environ, hidden)
    missing = sorted(hidden.difference(environ))
    if missing:
        words = " ".join(f"{name}=.." for name in missing)
        raise NoSecretError(
            f"{', '.join(missing)} was set for this run's trials and is written down nowhere; "
            f"to go on, set it in the environment: {words} nsa-harness .. --resume"
        )
    if HIDDEN in json.dumps(filled):
        raise NoSecretError(
            "a part of this run's command line is a secret and is written down nowhere; give it by a variable of the "
            "environment, where a run can be continued"
        )
    return from_json(type(question), filled)


def _filled(data: Any, environ: Mapping[str, str], hidden: set[str]) -> Any:
    """``data`` with what ``environ`` has of it; ``hidden`` takes the names of all variables whose value was hidden."""
    if isinstance(data, dict):
        return {key: _filled(part, environ, hidden) for key, part in cast("dict[str, Any]", data).items()}
    if not isinstance(data, list):
        return data
    parts = cast("list[Any]", data)
    if len(parts) == 2 and parts[1] == HIDDEN:
        hidden.add(str(parts[0]))
        return [parts[0], environ.get(str(parts[0]), HIDDEN)]
    return [_filled(part, environ, hidden) for part in parts]
