"""nsa-harness stacks: where is every rank of a running job, and does anything move?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.observe.job import Member
    from harness.reading.places import RankSeen

EPILOG = """\b
Examples:
  nsa-harness stacks 4242            a rank, torchrun, or the shell above
  nsa-harness stacks 4242 --samples 5 --all-threads
  nsa-harness stacks 4242 --native   C++ frames too; stops each rank briefly
  nsa-harness stacks 4242 --json | jq -r '.groups[].sentence'
\b
Exit codes:
  0    every rank was seen
  1    some rank could not be seen: it has ended, or nobody may look into it
  2    wrong use, no such process, or no Python process in its tree
  6    nothing could be read (ptrace refused, py-spy missing)
"""


@click.command(epilog=EPILOG)
@click.argument("pid", type=click.IntRange(min=1))
@click.option("--native", is_flag=True, help="Native frames too; stops each rank for 0.1 to 3 s, once, at the end.")
@click.option(
    "--samples", type=click.IntRange(1, 60), default=2, show_default=True, help="Stack samples per rank, 1 s apart."
)
@click.option("--all-threads", is_flag=True, help="The stacks of all threads, not only of the one that decides.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.pass_context
def stacks(ctx: click.Context, *, pid: int, native: bool, samples: int, all_threads: bool, as_json: bool) -> None:
    """Say where every rank of the running job around PID is: grouped, the odd one out first.

    PID is any process of the job. It says where the ranks are and whether anything moved between two looks 1 s
    apart, and nothing about why. Without --native no rank is stopped or signalled.
    """
    import json

    from harness.cli.console import progress
    from harness.clock import WallClock
    from harness.launch import procs
    from harness.observe.job import ProcTree, find_job
    from harness.observe.proc import Proc
    from harness.observe.stacks.pystack import PyStack
    from harness.observe.stacks.table import load_sources
    from harness.observe.survey import Survey
    from harness.reading.places import group_ranks

    job = find_job(pid, tree=ProcTree())
    clock = WallClock()

    def is_same(member: Member) -> bool:
        now = procs.read(member.pid)
        return now is not None and not now.dead and now.started == member.started

    survey = Survey(
        job=job,
        clock=clock,
        view=Proc(),
        is_same=is_same,
        neutral=load_sources(("py-spy", "pystack")),
        native=(PyStack(every_thread=True), *load_sources(("py-spy",))) if native else (),
        note=progress(now=clock.now),
    )
    seen = survey.take(samples=samples)
    groups = group_ranks(seen)
    if as_json:
        from harness.cli.stacks_text import as_data

        click.echo(json.dumps(as_data(job, seen, groups), indent=1))
    else:
        from harness.cli.console import result
        from harness.cli.stacks_text import as_text

        result(as_text(job, seen, groups, all_threads=all_threads))
    ctx.exit(_exit_code(seen))


def _exit_code(seen: Sequence[RankSeen]) -> int:
    if all(rank.missing for rank in seen) and not all("ended" in rank.missing for rank in seen):
        return ExitCode.INFRA
    return ExitCode.FINDINGS if any(rank.missing and rank.required for rank in seen) else ExitCode.OK
