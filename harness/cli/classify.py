"""nsa-harness classify: judge recorded evidence again, without running anything."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.exit_codes import TEXT, ExitCode

EXAMPLES = """\b
Examples:
  nsa-harness classify
  nsa-harness classify runs/20261121-130501-n_layers

"""


@click.command(epilog=EXAMPLES + TEXT)
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--runs", metavar="DIR", help="Where runs are (default: ./runs, or NSA_HARNESS_RUNS).")
@click.pass_context
def classify(ctx: click.Context, *, run: str | None, runs: str | None) -> None:
    """Judge the recorded evidence of RUN (the last one by default) by today's rules.

    Prints each trial's recorded verdict beside the one its evidence gets now. Exit 1 when any differs.
    """
    from harness.classify.engine import classify as judge
    from harness.core.verdict import Case
    from harness.settings import Settings
    from harness.store.run_store import find_latest, read_evidence, read_run

    where = Settings.read(runs=runs).runs
    directory = find_latest(where) if run is None else Path(run) if Path(run).is_dir() else where / run
    found = read_run(directory)
    differ = 0
    for record in found.records:
        evidence = read_evidence(directory, record.trial.key)
        if evidence is None:
            click.echo(f"{record.trial.key}  {record.trial.point}  {record.verdict}  (its evidence was not kept)")
            continue
        now = judge(Case(trial=record.trial, outcome=record.outcome, evidence=evidence))
        same = (now.kind, now.cause) == (record.verdict.kind, record.verdict.cause)
        differ += not same
        mark = "same" if same else f"now {now}: {now.because}"
        click.echo(f"{record.trial.key}  {record.trial.point}  {record.verdict}  {mark}")
    if not found.records:
        ctx.exit(ExitCode.NOTHING)
    ctx.exit(ExitCode.FINDINGS if differ else ExitCode.OK)
