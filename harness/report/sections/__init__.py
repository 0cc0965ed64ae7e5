"""Sections of a report, one file each: ``section(run, run_dir) -> Block | None``."""

from __future__ import annotations

from harness.registry import Registry

SECTIONS = Registry(
    "report section",
    {
        "answer": "harness.report.sections.answer:section",
        "notes": "harness.report.sections.notes:section",
        "strip": "harness.report.sections.strip:section",
        "trials": "harness.report.sections.trials:section",
        "failures": "harness.report.sections.failures:section",
        "tree": "harness.report.sections.tree:section",
        "hypotheses": "harness.report.sections.hypotheses:section",
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
"""In the order in which they stand in the report."""
