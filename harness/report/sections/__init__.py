"""Sections of a report below its answer, one file each: ``section(findings, run_dir) -> Block | None``."""

from __future__ import annotations

from harness.registry import Registry

SECTIONS = Registry(
    "report section",
    {
        "notes": "harness.report.sections.notes:section",
        "strip": "harness.report.sections.strip:section",
        "cells": "harness.report.sections.cells:section",
        "trials": "harness.report.sections.trials:section",
        "failures": "harness.report.sections.failures:section",
        "tree": "harness.report.sections.tree:section",
        "hypotheses": "harness.report.sections.hypotheses:section",
        "causes": "harness.report.sections.causes:section",
        "scaling": "harness.report.sections.scaling:section",
        "controls": "harness.report.sections.controls:section",
        "earlier": "harness.report.sections.earlier:section",
        "kernels": "harness.report.sections.kernels:section",
        "fixed": "harness.report.sections.fixed:section",
        "machine": "harness.report.sections.machine:section",
        "not_tested": "harness.report.sections.not_tested:section",
        "beside": "harness.report.sections.beside:section",
        "reproduce": "harness.report.sections.reproduce:section",
    },
)

_LAST = ("earlier", "kernels", "fixed", "machine", "not_tested", "beside", "reproduce")

ALONG = ("notes", "strip", "trials", "failures", "tree", "hypotheses", "scaling", "controls", *_LAST)
"""The sections of a threshold search, in order."""

OVER_CELLS = ("notes", "cells", "hypotheses", "causes", "failures", "tree", "scaling", "trials", *_LAST)
"""The sections of any other question, in order."""
