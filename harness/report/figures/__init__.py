"""Figures of a report: ``figure(findings, hide) -> Figure | None``; matplotlib is imported when one is drawn."""

from __future__ import annotations

from harness.registry import Registry

FIGURES = Registry(
    "report figure",
    {
        "heat": "harness.report.figures.heat:figure",
        "strip": "harness.report.figures.strip:figure",
        "timeline": "harness.report.figures.timeline:figure",
        "stacks": "harness.report.figures.stacks:figure",
        "memory": "harness.report.figures.memory:figure",
        "scaling": "harness.report.figures.scaling:figure",
        "curve": "harness.report.figures.strip:curve",
    },
)
"""In the order in which they are drawn."""
