"""Every shape that a report is written in, from the one model."""

from __future__ import annotations

from harness.registry import Registry

FORMS = Registry(
    "report format",
    {
        "terminal": "harness.report.render.terminal:of_report",
        "md": "harness.report.render.markdown:render",
        "html": "harness.report.render.html:render",
        "json": "harness.report.render.json:render",
        "junit": "harness.report.render.junit:render",
        "github": "harness.report.render.markdown:step_summary",
        "short": "harness.report.render.markdown:short",
        "viewer": "harness.report.viewer.page:render",
        "perfetto": "harness.report.viewer.traces:perfetto",
        "speedscope": "harness.report.viewer.traces:speedscope",
    },
)
"""Each is called as ``render(report, hide=..)`` and gives the whole text."""
