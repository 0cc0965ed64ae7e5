"""The journal's verbs: status, log, replay, undo, skip, mark, graph. None of them runs a trial."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from harness.cli import complete
from harness.cli.exit_codes import JOURNAL, ExitCode
from harness.cli.fitting import fitting, say
from harness.cli.options import RUNS

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.campaign import CampaignSpec
    from harness.core.point import Point


RUN = click.argument("run", required=False, metavar="[RUN]", shell_complete=complete.runs)
ABOUT = click.option("--run", metavar="RUN", help="The run (default: the last one).")
CELL = click.argument("cell", metavar="CELL")
WHY = click.option("--why", default="", help="A word for the report.")
WORDS = ("pass", "fail", "hang", "crash", "skip")
NEXT = "continue with --resume"
OF_RUN = "a run of one program is not continued: run it again"


def _place(run: str | None, runs: str | None) -> Path:
    from harness.settings import Settings
    from harness.store.run_store import find_run

    return find_run(Settings.read(runs=runs).runs, run)


STATUS = """\b
Examples:
  nsa-harness status
  nsa-harness status runs/20261121-130501-n_layers
"""


@click.command(epilog=STATUS + JOURNAL)
@RUN
@RUNS
def status(*, run: str | None, runs: str | None) -> None:
    """Where RUN stands (the last one by default): trials, what is asked next, what is left to spend."""
    from harness.cli.console import result
    from harness.cli.journal_text import status_lines

    place = _place(run, runs)
    result(lambda: "\n".join(status_lines(place)))


LOG = """\b
Examples:
  nsa-harness log
  nsa-harness log | grep decision
"""


@click.command(epilog=LOG + JOURNAL)
@RUN
@RUNS
def log(*, run: str | None, runs: str | None) -> None:
    """Every event of RUN (the last one by default), a line each: what was asked, why, and what came of it."""
    from harness.cli.journal_text import log_lines

    for line in log_lines(_place(run, runs)):
        say(line)


REPLAY = """\b
Examples:
  nsa-harness replay
\b
Exit codes:
  0    every decision is the same
  1    some differ
  2    wrong use
  6    there is no such run, or it cannot be read
"""


@click.command(epilog=REPLAY)
@RUN
@RUNS
@click.pass_context
def replay(ctx: click.Context, *, run: str | None, runs: str | None) -> None:
    """Play RUN's journal through a fresh search, and say where that would decide otherwise. Runs nothing.

    The journal is one JSON object a line and may be edited: fsck --accept makes it count, --resume goes on from there.
    """
    from harness.cli.journal_text import replay_lines

    lines, same = replay_lines(_place(run, runs))
    say("\n".join(lines))
    ctx.exit(ExitCode.OK if same else ExitCode.FINDINGS)


GRAPH = """\b
Examples:
  nsa-harness graph
  nsa-harness graph --dot | dot -Tsvg > cells.svg
"""


@click.command(epilog=GRAPH + JOURNAL)
@RUN
@RUNS
@click.option("--dot", is_flag=True, help="For Graphviz: cells, and an edge where two differ in one axis.")
def graph(*, run: str | None, runs: str | None, dot: bool) -> None:
    """The cells that RUN tried, a row each: its settings that are not the good ones, and how it ended."""
    from harness.cli.journal_text import dot_lines, graph_lines

    place = _place(run, runs)
    say("\n".join(dot_lines(place) if dot else graph_lines(place)))


UNDO = """\b
Examples:
  nsa-harness undo
  nsa-harness undo 3 && nsa-harness minimise --resume
\b
Exit codes:
  0    done
  2    wrong use
  5    there is nothing to take back
  6    there is no such run, or it cannot be read or written
"""


@click.command(epilog=UNDO)
@click.argument("count", type=click.IntRange(min=1), default=1)
@ABOUT
@RUNS
@click.pass_context
def undo(ctx: click.Context, *, count: int, run: str | None, runs: str | None) -> None:
    """Take the last COUNT answers back (1 by default); they stay in the journal and are asked again.

    Not of a job that was only watched: what was seen of it nobody can ask again.
    """
    from harness.core.campaign import FOREIGN
    from harness.core.errors import SpecError
    from harness.store.history import History

    if History.read(place := _place(run, runs)).question.matrix.target == FOREIGN:
        raise SpecError(
            f"{place.name} is of a job that was only watched, which cannot be asked again; it stays as it is"
        )
    with _opened(run, runs) as store:
        facts = store.facts()
        if not facts:
            click.echo("there is nothing to take back", err=True)
            ctx.exit(ExitCode.NOTHING)
        store.add_undo(min(count, len(facts)))
        then = NEXT if store.spec.matrix.space.factors else OF_RUN
        say(f"took back {min(count, len(facts))} of {len(facts)} answers; {then}")


SKIP = """\b
Examples:
  nsa-harness skip n_layers=12,seq_len=2048 --why 'out of memory here'
  nsa-harness skip n_layers=7
"""


@click.command(epilog=SKIP + JOURNAL)
@CELL
@WHY
@ABOUT
@RUNS
def skip(*, cell: str, why: str, run: str | None, runs: str | None) -> None:
    """Never try CELL: it counts as unresolved, neither good nor bad."""
    _say(cell, "skip", why=why, run=run, runs=runs)


MARK = """\b
Examples:
  nsa-harness mark n_layers=12 hang --why 'seen three times on the cluster'
  nsa-harness mark n_layers=4,attention=nsa pass
"""


@click.command(epilog=MARK + JOURNAL)
@CELL
@click.argument("word", type=click.Choice(WORDS))
@WHY
@ABOUT
@RUNS
def mark(*, cell: str, word: str, why: str, run: str | None, runs: str | None) -> None:
    """Say how CELL ends without running it, as you saw it elsewhere. It counts as one trial, and says who said so."""
    _say(cell, word, why=why, run=run, runs=runs)


def _say(cell: str, word: str, *, why: str, run: str | None, runs: str | None) -> None:
    from harness.core.campaign import Override
    from harness.core.verdict import Answer
    from harness.store.history import History

    question = History.read(_place(run, runs)).question
    answer = {"pass": Answer.GOOD, "skip": Answer.UNRESOLVED}.get(word, Answer.BAD)
    override = Override(cell=_cell(cell, question), answer=answer, by="a user", why=why or f"marked {word}")
    with _opened(run, runs) as store:
        store.add_override(override)
    say(f"{cell}: {override.answer}; {NEXT}")


def _cell(text: str, question: CampaignSpec) -> Point:
    from harness.core.errors import SpecError
    from harness.spec.matrix_axes import parse_cell

    if not question.matrix.space.factors:
        raise SpecError("this run has one program and no axes, so there is no cell to speak of")
    return parse_cell(text, question.matrix.space)


def _opened(run: str | None, runs: str | None) -> Any:
    from harness.clock import WallClock
    from harness.store.run_store import RunStore

    return RunStore.open(_place(run, runs), clock=WallClock(), argv=())


FSCK = """\b
Examples:
  nsa-harness fsck runs/20261121-130501-n_layers
  nsa-harness fsck runs/20261121-130501-n_layers --salvage
  nsa-harness fsck --accept       # after a change to the journal by hand
\b
Exit codes:
  0    everything is as it was written, or what stands was saved
  1    something is not; each is a line with its place
  2    wrong use
  6    there is no such run, or it cannot be read or written
"""


@click.command(epilog=FSCK)
@RUN
@RUNS
@click.option("--salvage", is_flag=True, help="Write the journal again with every line that stands; keep the old one.")
@click.option("--accept", is_flag=True, help="The same, with lines that were changed by hand as they are now.")
@click.pass_context
def fsck(ctx: click.Context, *, run: str | None, runs: str | None, salvage: bool, accept: bool) -> None:
    """Check every line of RUN (the last one by default), its question, its machine and its trials' evidence.

    What is missing of a trial is named: its folder, its evidence, what it printed. What is damaged is told and never
    guessed. What --salvage leaves out, --resume asks again.
    """
    from harness.clock import WallClock
    from harness.core.errors import NoRunError
    from harness.settings import Settings
    from harness.store import fsck as checks
    from harness.store.run_store import find_run
    from harness.store.shelf import folders

    where = Settings.read(runs=runs).runs
    if run is None:  # also one that cannot be read
        begun = folders(where)
        if not begun:
            raise NoRunError(f"no run in {where}")
        directory = begun[-1]
    else:
        directory = find_run(where, run)
    named = directory if run in (None, "latest") else run  # a bundle is unpacked elsewhere
    problems = checks.problems(directory)
    for line in problems:
        say(line)
    if salvage or accept:
        intact, left_out, copy = checks.salvage(directory, clock=WallClock(), accept=accept)
        click.echo(f"{named}: {intact} lines stand, {left_out} were left out; the old journal is {copy}", err=True)
        problems = checks.problems(directory)
        for line in problems:
            say(f"still: {line}")
    else:
        what = "everything is" if not problems else f"{len(problems)} not"
        click.echo(fitting(f"{named}: {what} as it was written", to=sys.stderr), err=True)
    ctx.exit(ExitCode.FINDINGS if problems else ExitCode.OK)
