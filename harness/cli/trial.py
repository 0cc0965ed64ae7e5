"""nsa-harness trial: one cell, with the exit codes that ``git bisect run`` understands."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.exit_codes import ABORT, BAD, GOOD, SKIP, ExitCode, of_trial, tell, tell_survivors
from harness.cli.foreign import RepeatableCommand
from harness.cli.matrix_options import shared
from harness.core.errors import NoProgramError

EPILOG = """\b
Examples:
  nsa-harness trial matrices/backward_layers.yaml::n_layers=5,attention=nsa
  nsa-harness trial matrices/safe_mode.yaml::bad --signature backward-hang
  git bisect run nsa-harness trial hang.yaml::n_layers=5 --repeat 9
\b
Exit codes (as git bisect run reads them):
  0    good: every trial passed
  1    bad: a trial failed (with --signature: in that failure and no other)
  125  skip: slow, spoiled by the machine, another failure, or no answer
  128  stop: the cell cannot be run as written (no such axis, a wrong file)
  130  stop: interrupted
Never 137: how a trial is ended is not how this command ends.
"""


class Misuse(click.UsageError):
    """Wrong use, which must stop the search and not count against a commit."""

    exit_code = ABORT


class _NeverBad:
    """Lets no error of ours end in exit code 1 or 2: to git bisect that would be a bad commit."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, click.UsageError):
            raise Misuse(error.format_message(), error.ctx) from error
        ours = (click.ClickException, click.exceptions.Exit, click.Abort)
        if isinstance(error, Exception) and not isinstance(error, ours):
            is_in_the_way = tell(error) is ExitCode.INFRA or isinstance(error, NoProgramError)  # a commit may lack it
            raise SystemExit(SKIP if is_in_the_way else ABORT)


class BisectRunCommand(RepeatableCommand):
    """A command whose own mistakes are never taken for a bad commit."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, with another exit code."""
        with _NeverBad():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; an error in the file stops the search, a machine in the way skips."""
        with _NeverBad():
            return super().invoke(ctx)


@click.command("trial", cls=BisectRunCommand, epilog=EPILOG)
@click.argument("cell", metavar="FILE[::CELL]")
@click.option("--signature", metavar="NAME", help="Bad is only the failure that the file calls NAME.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Pass so often to be good.")
@shared
@click.pass_context
def trial(ctx: click.Context, *, cell: str, signature: str | None, repeat: int, **options: Any) -> None:
    """Run one CELL of a matrix FILE, such as n_layers=5,attention=nsa; the good one without CELL.

    It is bad at the first failure and good after --repeat passes.
    """
    from harness.cli.campaigns import run_of
    from harness.cli.console import result
    from harness.cli.questions import question_of_trial
    from harness.report.findings import Findings
    from harness.settings import Settings

    settings = Settings.read(runs=options["runs"])
    run = run_of(
        ctx, settings, options, lambda _: question_of_trial(cell, signature=signature, repeat=repeat, options=options)
    )
    code = of_trial(Findings(run=run))
    lines = [f"{record.verdict}: {record.verdict.because}" for record in run.records]
    answer = {GOOD: "good", BAD: "bad", SKIP: "skip"}.get(code, run.ended)
    result(lambda: "\n".join([*lines, f"{answer} ({code}); run directory: {run.directory}"]))
    tell_survivors(run)
    ctx.exit(code)
