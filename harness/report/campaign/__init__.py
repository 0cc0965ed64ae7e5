"""The report of a run over many cells: its sections and figures, ``(CampaignRun, run_dir) -> ...``."""

from __future__ import annotations

from harness.registry import Registry

SECTIONS = Registry(
    "matrix report section",
    {
        "answer": "harness.report.campaign.answer:section",
        "notes": "harness.report.sections.notes:section",
        "strip": "harness.report.campaign.along:strip",
        "cells": "harness.report.campaign.cells:section",
        "hypotheses": "harness.report.campaign.hypotheses:section",
        "causes": "harness.report.campaign.causes:section",
        "failures": "harness.report.campaign.evidence:section",
        "tree": "harness.report.sections.tree:section",
        "scaling": "harness.report.campaign.scaling:section",
        "trials": "harness.report.campaign.trials:section",
        "earlier": "harness.report.sections.earlier:section",
        "kernels": "harness.report.sections.kernels:section",
        "fixed": "harness.report.campaign.fixed:section",
        "machine": "harness.report.sections.machine:section",
        "not_tested": "harness.report.campaign.not_tested:section",
        "beside": "harness.report.sections.beside:section",
        "reproduce": "harness.report.campaign.reproduce:section",
    },
)
"""In the order in which they stand in the report."""

FIGURES = Registry(
    "matrix report figure",
    {
        "heat": "harness.report.figures.heat:figure",
        "timeline": "harness.report.figures.timeline:figure",
        "stacks": "harness.report.figures.stacks:figure",
        "memory": "harness.report.figures.memory:figure",
        "scaling": "harness.report.figures.scaling:of_campaign",
        "strip": "harness.report.campaign.along:strip_figure",
        "curve": "harness.report.campaign.along:curve_figure",
    },
)
