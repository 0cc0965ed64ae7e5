"""nsa-harness classify: judge recorded evidence again, without running anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness.cli import complete
from harness.cli.exit_codes import ExitCode
from harness.cli.fitting import say
from harness.cli.options import RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.core.verdict import Case, Verdict

EXAMPLES = """\b
Examples:
  nsa-harness classify
  nsa-harness classify runs/20261121-130501-n_layers
  nsa-harness selftest --keep seen; nsa-harness classify seen --differing
\b
Exit codes:
  0    every trial is judged as it was
  1    some are judged otherwise
  2    wrong use
  5    there is no recorded evidence to judge
  6    there is no such run, or it cannot be read
"""


@click.command(epilog=EXAMPLES)
@click.argument("run", required=False, metavar="[RUN]", shell_complete=complete.runs)
@RUNS
@click.option("--differing", is_flag=True, help="Only trials that get another verdict now.")
@click.pass_context
def classify(ctx: click.Context, *, run: str | None, runs: str | None, differing: bool) -> None:
    """Judge the recorded evidence of RUN (the last one by default) by today's rules.

    RUN is a run's name or folder (bisect, matrix), or any folder with recorded cases, such as the one that
    selftest --keep made. Prints each trial's recorded verdict beside the one its evidence gets now, and why, where
    they differ. Exit 1 when any does.
    """
    from harness.classify.engine import classify as judge
    from harness.report.verify import is_same
    from harness.settings import Settings
    from harness.store.run_store import find_run

    where = Settings.read(runs=runs).runs
    directory = find_run(where, run)
    judged = differ = 0
    for name, before, case in _recorded(directory):
        if case is None:
            say(f"{name}  {before}  (its evidence is missing)")
            continue
        now = judge(case)
        same = is_same(now, before)
        judged += 1
        differ += not same
        if not same:
            say(f"{name}  {_columns(before)}  now {_columns(now)} by rule {now.rule}: {now.because}")
        elif not differing:
            say(f"{name}  {_columns(before)}  same")
    click.echo(f"{judged} judged again, {differ} differ", err=True)
    if not judged:
        ctx.exit(ExitCode.NOTHING)
    ctx.exit(ExitCode.FINDINGS if differ else ExitCode.OK)


def _recorded(directory: Path) -> Iterator[tuple[str, Verdict, Case | None]]:
    """Name, verdict and case of every trial that was recorded in ``directory``; no case where no evidence was kept."""
    from harness.core.verdict import Case
    from harness.store import layout
    from harness.store.cases import read_cases
    from harness.store.history import read_evidence
    from harness.store.run_store import read_run

    if not layout.journal(directory).exists() and directory.is_dir():
        yield from ((row.name, row.verdict, row.case) for row in read_cases(directory))
        return
    records = read_run(directory).records
    for record in records:
        evidence = read_evidence(directory, record.trial.key)
        case = Case(trial=record.trial, outcome=record.outcome, evidence=evidence) if evidence is not None else None
        yield f"{record.trial.key}  {record.trial.point}", record.verdict, case


def _columns(verdict: Verdict) -> str:
    rank = "" if verdict.rank is None else f", rank {verdict.rank}"
    return f"{verdict}{f' in {verdict.phase}' if verdict.phase else ''}{rank}"
