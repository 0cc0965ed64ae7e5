"""Sections of a report below its answer, one file each: ``section(findings) -> Block | None``."""

from __future__ import annotations

from harness.registry import Registry

_LAST = ("earlier", "kernels", "fixed", "machine", "not_tested", "beside", "reproduce")

ALONG = ("notes", "strip", "trials", "failures", "tree", "hypotheses", "scaling", "controls", *_LAST)
"""The sections of a threshold search, in order."""

OVER_CELLS = ("notes", "cells", "hypotheses", "causes", "failures", "tree", "scaling", "trials", *_LAST)
"""The sections of any other question, in order."""

SECTIONS = Registry(
    "report section", {name: f"harness.report.sections.{name}:section" for name in dict.fromkeys((*ALONG, *OVER_CELLS))}
)
