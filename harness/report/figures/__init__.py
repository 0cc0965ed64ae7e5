"""Figures of a report, each called as ``(findings, hide) -> Figure | None``; matplotlib comes with the first drawn."""

from __future__ import annotations

from harness.registry import Registry

FIGURES = Registry(
    "report figure",
    {
        "heat": "harness.report.figures.boxes:heat_map",
        "strip": "harness.report.figures.boxes:strip",
        "timeline": "harness.report.figures.trial:timeline",
        "stacks": "harness.report.figures.trial:stacks",
        "memory": "harness.report.figures.curves:memory",
        "scaling": "harness.report.figures.curves:scaling",
        "curve": "harness.report.figures.boxes:curve",
    },
)
"""In the order in which they are drawn."""
