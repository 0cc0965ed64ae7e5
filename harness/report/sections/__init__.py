"""Sections of a report below its answer: ``<name>_section(findings) -> Block | None``."""

from __future__ import annotations

from harness.registry import Registry

_LAST = ("earlier", "kernels", "fixed", "machine", "not_tested", "beside", "reproduce")

ALONG = ("notes", "strip", "trials", "failures", "tree", "hypotheses", "scaling", "controls", *_LAST)
"""The sections of a threshold search, in order."""

OVER_CELLS = ("notes", "cells", "hypotheses", "causes", "failures", "tree", "scaling", "trials", *_LAST)
"""The sections of any other question, in order."""

MODULES = {
    "notes": "setting", "strip": "threshold", "trials": "evidence", "failures": "evidence", "tree": "reasons",
    "hypotheses": "reasons", "scaling": "threshold", "controls": "threshold", "earlier": "earlier",
    "kernels": "setting", "fixed": "setting", "machine": "setting", "not_tested": "onward", "beside": "evidence",
    "reproduce": "onward", "cells": "cells", "causes": "cells",
}  # fmt: skip
"""The module of each."""

SECTIONS = Registry(
    "report section", {name: f"harness.report.sections.{module}:{name}_section" for name, module in MODULES.items()}
)
