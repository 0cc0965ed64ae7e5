"""The matrix files that come with the instrument, and the schema that their first lines name."""

from __future__ import annotations

from pathlib import Path

import harness


def examples() -> tuple[Path, ...]:
    """Their paths, by name."""
    return tuple(sorted(_folder().glob("*.yaml")))


def schema_file() -> Path:
    """What an editor reads to complete and check them."""
    return _folder() / "matrix.schema.json"


def _folder() -> Path:
    """In the installed package, or in the checkout that it runs from."""
    package = Path(harness.__file__).parent
    return next(place for place in (package / "matrices", package.parent / "matrices") if place.is_dir())
