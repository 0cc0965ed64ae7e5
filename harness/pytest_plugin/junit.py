"""The JUnit file of a session whose process had to be ended, by pytest's own writer from the reports so far."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.pytest_plugin.place import read_told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.pytest_plugin.place import Told


def write(reports: Sequence[dict[str, Any]], told: Told, settings: dict[str, Any]) -> None:
    """Write it: every report so far, and the failure of the test that hung."""
    from _pytest.junitxml import LogXML
    from _pytest.reports import CollectReport, TestReport
    from _pytest.timing import Instant

    given = dict(settings)
    began = {name: given.pop(name) for name in ("time", "perf_count")}
    xml = LogXML(**given)
    xml.suite_start = Instant()
    for name, value in began.items():
        object.__setattr__(xml.suite_start, name, value)  # frozen, and made for the present
    for data in reports:
        if data.pop("$report_type", "") == "CollectReport":
            xml.pytest_collectreport(CollectReport._from_json(data))
        else:
            xml.pytest_runtest_logreport(TestReport._from_json(data))
    properties = [("hang_guard_verdict", told.verdict), ("hang_guard_report", told.report)]
    location = (told.nodeid.partition("::")[0], None, told.nodeid)
    failed: dict[str, Any] = {"outcome": "failed", "longrepr": told.text, "when": told.phase, "duration": told.seconds}
    ended: dict[str, Any] = {"outcome": "passed", "longrepr": None, "when": "teardown"}
    for told_of in [failed] if told.phase == "teardown" else [failed, ended]:
        xml.pytest_runtest_logreport(
            TestReport(nodeid=told.nodeid, location=location, keywords={}, user_properties=properties, **told_of)
        )
    xml.pytest_sessionfinish()


def main(arguments: Sequence[str]) -> None:
    """``junit FOLDER NAME``."""
    folder, name = Path(arguments[0]), arguments[1]
    told = read_told(folder / f"{name}.told")
    settings = json.loads((folder / f"{name}.json").read_text())["junit"]
    lines = (folder / f"{name}.reports").read_text().splitlines()
    if told is not None:
        write([json.loads(line) for line in lines], told, settings)
