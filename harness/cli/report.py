"""nsa-harness report: the report of a run, again, from its journal."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.exit_codes import TEXT, ExitCode

EXAMPLES = """\b
Examples:
  nsa-harness report
  nsa-harness report runs/20261121-130501-n_layers --markdown
  nsa-harness report --list

"""


@click.command(epilog=EXAMPLES + TEXT)
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--runs", metavar="DIR", help="Where runs are (default: ./runs, or NSA_HARNESS_RUNS).")
@click.option("--list", "listed", is_flag=True, help="List the runs, newest first.")
@click.option("--markdown", is_flag=True, help="Print the whole report instead of its summary.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def report(
    ctx: click.Context, *, run: str | None, runs: str | None, listed: bool, markdown: bool, as_json: bool
) -> None:
    """Write the report of RUN (the last one by default) again and print its summary.

    Works for finished, interrupted and empty runs, on any machine, without torch. Nothing is run.
    """
    from harness.report.write import summary_json, summary_text, write
    from harness.settings import Settings
    from harness.store import layout
    from harness.store.run_store import find_latest, list_runs, read_run

    where = Settings.read(runs=runs).runs
    if listed:
        rows = list_runs(where)
        for row in rows:
            click.echo(str(row))
        if not rows:
            click.echo(f"no runs in {where}", err=True)
            ctx.exit(ExitCode.NOTHING)
        return
    directory = find_latest(where) if run is None else Path(run) if Path(run).is_dir() else where / run
    found = read_run(directory)
    write(found, directory)
    if markdown:
        click.echo(layout.report(directory).read_text(encoding="utf-8"))
    else:
        click.echo(summary_json(found) if as_json else summary_text(found))
