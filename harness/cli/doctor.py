"""nsa-harness doctor: is this machine fit for trustworthy trials?"""

from __future__ import annotations

import click

from harness.cli.exit_codes import ExitCode
from harness.cli.fitting import say
from harness.cli.options import JSON, NEW_RUNS

EPILOG = """\b
Examples:
  nsa-harness doctor
  nsa-harness doctor --json | jq -r '.[] | select(.level != "ok").next'
\b
Exit codes:
  0    nothing is in the way; a warning says what will be missing
  2    wrong use
  6    something is in the way, and the line says what to do
"""


@click.command(epilog=EPILOG)
@NEW_RUNS
@JSON
@click.pass_context
def doctor(ctx: click.Context, *, runs: str | None, as_json: bool) -> None:
    """Check this machine before you trust a verdict on it.

    Each line says what was tried, what was seen, and what to do when it is not right. Nothing is changed.
    """
    import json
    from dataclasses import asdict

    from harness.checkup import examine
    from harness.settings import Settings

    findings = examine(Settings.read(runs=runs))
    if as_json:
        click.echo(json.dumps(list(map(asdict, findings)), indent=1))
    else:
        for finding in findings:
            say(f"{finding.level:<5} {finding.name:<12} {finding.seen}")
            if finding.level != "ok":
                say(f"{'':<5} {'':<12} next: {finding.next}")
    if any(f.level == "fail" for f in findings):
        ctx.exit(ExitCode.INFRA)
