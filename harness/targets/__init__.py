"""Trial -> Command; pure. TARGETS is the table of programs that can be asked."""

from __future__ import annotations

from harness.registry import Registry

TARGETS = Registry(
    "target",
    {"nsa": "harness.targets.nsa:NsaTarget", "command": "harness.targets.script:ScriptTarget"},
    group="nsa_harness.targets",
)
