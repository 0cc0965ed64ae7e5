"""nsa-harness stacks: where is every rank of a running job, and does anything move?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness.cli.exit_codes import ExitCode
from harness.cli.options import JSON, PID, SLURM

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.observe.job import JobTree
    from harness.reading.places import RankSeen

EPILOG = """\b
Examples:
  nsa-harness stacks 4242            a rank, torchrun, or the shell above
  nsa-harness stacks 1               in a container that begins with it
  nsa-harness stacks 4242 --samples 5 --all-threads
  nsa-harness stacks 4242 --native   C++ frames too; stops each rank briefly
  nsa-harness stacks --slurm 17      all nodes of a job of Slurm
  nsa-harness stacks 4242 --json | jq -r '.groups[].sentence'
\b
Exit codes:
  0    every rank was seen
  1    some rank could not be seen: it has ended, or nobody may look into it
  2    wrong use, no such process or job, or no Python process in it
  6    nothing could be read (ptrace refused, py-spy missing)
"""


@click.command(epilog=EPILOG)
@PID
@SLURM
@click.option("--native", is_flag=True, help="Native frames too; stops each rank for 0.1 to 3 s, once, at the end.")
@click.option(
    "--samples", type=click.IntRange(1, 60), default=2, show_default=True, help="Stack samples per rank, 1 s apart."
)
@click.option("--all-threads", is_flag=True, help="The stacks of all threads, not only of the one that decides.")
@JSON
@click.pass_context
def stacks(
    ctx: click.Context,
    *,
    pid: int | None,
    slurm: str | None,
    native: bool,
    samples: int,
    all_threads: bool,
    as_json: bool,
) -> None:
    """Say where every rank of the running job around PID is: grouped, the odd one out first.

    PID is any process of the job. It says where the ranks are and whether anything moved between two looks 1 s
    apart, and nothing about why. Without --native no rank is stopped or signalled.
    """
    import json

    from harness.cli.console import progress
    from harness.clock import WallClock
    from harness.observe.attach import SOURCES
    from harness.observe.job import ProcTree, find_job, is_same
    from harness.observe.proc import Proc
    from harness.observe.stacks.pystack import PyStack
    from harness.observe.stacks.table import load_sources
    from harness.observe.survey import Survey
    from harness.reading.places import group_ranks

    clock = WallClock()
    note = progress(now=clock.now)
    if (pid is None) == (slurm is None):
        raise click.UsageError("give a PID, or --slurm JOBID")
    if slurm is not None and native:
        raise click.UsageError("--native is for a job of this machine: it is not asked of other nodes")
    if slurm is not None:
        job, ranks = _of_slurm(slurm, samples=samples, note=note)
    else:
        job = find_job(pid or 0, tree=ProcTree(named=pid or 0))
        survey = Survey(
            job=job,
            clock=clock,
            view=Proc(),
            is_same=is_same,
            neutral=load_sources(SOURCES),
            native=(PyStack(every_thread=True), *load_sources(("py-spy",))) if native else (),
            note=note,
        )
        ranks = survey.take(samples=samples)
    groups = group_ranks(ranks)
    if as_json:
        from harness.cli.stacks_text import as_data

        click.echo(json.dumps(as_data(job, ranks, groups), indent=1))
    else:
        from harness.cli.console import result
        from harness.cli.stacks_text import as_text

        result(lambda: as_text(job, ranks, groups, all_threads=all_threads))
    if all(rank.missing for rank in ranks) and any(rank.refused for rank in ranks):
        ctx.exit(ExitCode.INFRA)
    ctx.exit(ExitCode.FINDINGS if any(rank.missing and rank.required for rank in ranks) else ExitCode.OK)


def _of_slurm(slurm: str, *, samples: int, note: Callable[[str], None]) -> tuple[JobTree, tuple[RankSeen, ...]]:
    """The ranks of a job of Slurm, each as its own node saw it."""
    from dataclasses import replace

    from harness.cluster.onlook import ask, onlookers, slurm_job_tree
    from harness.core.columns import from_columns
    from harness.reading.places import RankSeen

    with onlookers(slurm, note=note) as members:
        note(f"stacks on {len(members)} node(s)")
        answers, failures = ask(members, {"slurm": slurm, "samples": samples})
    for failure in failures:
        click.echo(f"not seen: {failure}", err=True)
    ranks: list[RankSeen] = []
    absent: dict[int | None, RankSeen] = {}
    for node, answer in answers:
        for columns in answer["seen"]:
            rank = from_columns(RankSeen, columns)
            if rank.pid is None:
                absent[rank.rank] = replace(rank, node="")
            else:
                ranks.append(replace(rank, node=node.host))
    for rank in ranks:
        absent.pop(rank.rank, None)
    ranks += absent.values()
    ranks.sort(key=lambda one: -1 if one.rank is None else one.rank)
    return slurm_job_tree(slurm, answers), tuple(ranks)
