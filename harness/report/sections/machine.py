"""Machine: where this was seen. Another machine may answer otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.report.text import code, md, size, table

if TYPE_CHECKING:
    from harness.report.findings import Findings


def section(findings: Findings) -> Block | None:
    """Hardware and versions; no host or user names."""
    run = findings.run
    machine = run.machine
    rows = [
        ("CPU", f"{md(machine.cpu)}, {machine.cores} cores usable"),
        ("memory", size(machine.memory_bytes)),
        ("GPU", md(", ".join(machine.gpus)) or "none"),
        ("system", f"{md(machine.platform)}, kernel {md(machine.kernel)}"),
        ("Python", md(machine.python)),
        ("torch", md(machine.torch)),
        *((md(name), md(version)) for name, version in machine.packages if name != "torch"),
        ("nsa-harness", code(run.code)),
    ]
    return Block(title="Machine", markdown=table(("", "version"), rows))
