"""Fixed: the axes with what each value does, what every cell shares, and whether the workers ran what was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.ports import Block
from harness.report.sections.fixed import effective
from harness.report.text import code, listed, md, seconds, table

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.record import CampaignRun
    from harness.core.space import Bundle, Factor


def section(run: CampaignRun, run_dir: Path) -> Block | None:
    """What was varied, what was held."""
    matrix, limits = run.spec.matrix, run.spec.matrix.limits
    axes = table(
        ("axis", "values", "good", "bad", "each value sets"),
        ((code(f.name), md(listed(f.axis.values)), md(f.good), md(f.bad), _sets(f)) for f in matrix.space.factors),
    )
    by_hand = {"startup": limits.startup_s, "stall": limits.stall_s, "total": limits.total_s}
    rows: list[tuple[str, str]] = [
        ("target", code(matrix.target)),
        *([("command", code(" ".join(matrix.command)))] if matrix.command else []),
        *((md(name), code(value)) for name, value in matrix.base.config),
        *((f"env {md(name)}", code(value)) for name, value in matrix.base.env),
        ("planted fault", code(matrix.fault) if matrix.fault else "none"),
        ("started by", md(run.spec.executor)),
        ("seed", str(run.spec.seed)),
        *((f"{name} limit", seconds(value)) for name, value in by_hand.items() if value is not None),
        *(("rule", md(rule)) for rule in matrix.space.rules),
    ]
    parts = [axes, "The same in every cell:", table(("setting", "value"), rows), effective(run, run_dir)]
    return Block(title="Varied and held", markdown="\n\n".join(part for part in parts if part))


def _sets(factor: Factor) -> str:
    said = [_bundle(bundle) for bundle in factor.bundles]
    return (
        listed((f"{md(v)}: {text}" for v, text in zip(factor.axis.values, said, strict=False) if text), most=6) or "-"
    )


def _bundle(bundle: Bundle) -> str:
    words = [f"{name}={value}" for name, value in (*bundle.config, *bundle.env)] + list(bundle.args)
    return listed((code(word) for word in words), most=4)
