"""nsa-harness matrix: what a matrix file means, before anything runs; and its cells run, held against expectations."""

from __future__ import annotations

import datetime as dt
import json
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from harness.cli import complete
from harness.cli.exit_codes import ExitCode
from harness.cli.fitting import say
from harness.cli.foreign import COMMAND, WithCommand
from harness.cli.matrix_emit import emit
from harness.cli.matrix_options import AXES, asking
from harness.cli.options import FILES
from harness.core.matrix import MatrixStrategy
from harness.core.point import word_of
from harness.report.text import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.campaign import CampaignSpec
    from harness.core.matrix import Matrix
    from harness.core.space import Factor
    from harness.settings import Settings
    from harness.spec.matrix_lint import Lint


RUN = """\b
Examples:
  nsa-harness matrix run matrices/backward_layers.yaml
  nsa-harness matrix run matrices/backward_layers.yaml \\
                         --only 'n_layers>=4' --only attention=nsa --repeat 3
  nsa-harness matrix run matrices/safe_mode.yaml --cell n_layers=4,seq_len=256
  nsa-harness matrix run matrices/backward_layers.yaml::layers
  nsa-harness matrix run --axis layers=1,4,8 --repeat 3 \\
                         -- python train.py {amp:--amp} --layers {layers}
  nsa-harness matrix run --resume
\b
What may stand behind -- is in nsa-harness minimise --help.
\b
Exit codes:
  0    every cell ended as expected (a search: answered and certified)
  1    a cell did not; or a search's answer is not certified
  2    wrong use: unknown option, or an error in the file
  3    inconclusive, or budget used up: the report is partial
  4    baseline not reproduced (searches)
  5    no cell was selected
  6    the machine spoiled trials, or is in the way
  130  interrupted; everything so far is kept, --resume continues
"""


@click.command(
    "run",
    cls=WithCommand,
    epilog=RUN,
    options_metavar="[OPTIONS] [-- COMMAND...]",
    short_help="Run the cells of a file, a search beside it, or what is typed.",
)
@click.argument("file", required=False, metavar="[FILE[::SEARCH]]")
@AXES
@click.option(
    "--strategy",
    type=click.Choice([strategy.value for strategy in MatrixStrategy]),
    help="Which cells (default: the file's; full for what is typed).",
)
@click.option("--only", multiple=True, metavar="AXIS=VALUE", help="Only planned cells where this holds.")
@click.option(
    "--cell",
    "cells",
    multiple=True,
    metavar="AXIS=V,..",
    shell_complete=complete.cells,
    help="This cell, also one that is not planned.",
)
@click.option("--gpus", type=click.IntRange(min=0), help="Only cells that occupy so many GPUs.")
@click.option("--shard", metavar="K/N", help="Only the K-th of N equal parts of them.")
@click.option("--tag", "tags", multiple=True, help="Run nothing unless the file has this tag.")
@click.option("--repeat", type=click.IntRange(min=1), help="Run each cell so often (default: the file's passes).")
@click.option("--fail-fast", is_flag=True, help="Stop at the first cell that does not end as expected.")
@asking
@click.pass_context
def run(ctx: click.Context, *, file: str | None, **options: Any) -> None:
    """Run the cells of FILE, or the search named SEARCH beside it; or every combination of what is typed.

    Each cell is run as often as asked, round by round. A cell that would not pass within its limit even if it were
    healthy is skipped and says so: its limit could not tell slow from hung.
    """
    from harness.cli.campaigns import answer
    from harness.cli.questions import question_of_cells

    def question(settings: Settings) -> CampaignSpec:
        spec = question_of_cells(settings, file, options, command=ctx.meta[COMMAND])
        if spec is None:
            click.echo(f"no cell was selected{_why_none(file, options)}", err=True)
            ctx.exit(ExitCode.NOTHING)
        return spec

    answer(ctx, options, question)


def _why_none(file: str | None, options: Mapping[str, Any]) -> str:
    show = f"see cells and tags with: nsa-harness matrix show {shlex.quote(file)}" if file else ""
    choosing: list[str] = []
    for name, option in CHOOSING.items():
        choosing += [f"{option} {value}" for value in _several(options[name])]
    if choosing:
        return f" by {' '.join(choosing)}{show and f'; {show}'}"
    others = ", ".join(strategy for strategy in MatrixStrategy if strategy is not MatrixStrategy.LIST)
    return f": its strategy is list, and it includes none. Choose another with --strategy ({others}), or {show}"


CHOOSING = {"only": "--only", "cells": "--cell", "gpus": "--gpus", "shard": "--shard", "tags": "--tag"}
"""Options that leave cells out."""


def _several(value: object) -> tuple[object, ...]:
    """The values that an option was given, none or one or more."""
    if isinstance(value, tuple):
        return cast("tuple[object, ...]", value)
    return () if value is None else (value,)


def question_in(settings: Settings, file: str) -> CampaignSpec | None:
    """What ``matrix run FILE`` asks; None where its matrix plans no cell."""
    from harness.cli.questions import question_of_cells

    return question_of_cells(settings, file, run.make_context("run", [file]).params)


MOST_CELLS = 40
EPILOG = """\b
Examples:
  nsa-harness matrix show matrices/safe_mode.yaml
  nsa-harness matrix lint matrices/safe_mode.yaml matrices/ddp_checkpoint.yaml
  nsa-harness matrix schema > matrix.schema.json
  nsa-harness matrix copy            examples, into ./matrices
\b
Exit codes:
  0    nothing to remark
  1    lint has a remark
  2    wrong use: unknown option, or an error in the file
"run" has more; see nsa-harness matrix run --help.
"""
CODES = """\b
Exit codes:
  0    done
  2    wrong use: unknown option, or an error in the file
"""
SHOW = """\b
Examples:
  nsa-harness matrix show matrices/safe_mode.yaml
  nsa-harness matrix show --all matrices/ready_twice.yaml
  nsa-harness matrix show --json matrices/*.yaml | jq -r '[.name, .trials]'
"""
LINT = """\b
Examples:
  nsa-harness matrix lint matrices/*.yaml
\b
Exit codes:
  0    nothing to remark
  1    a remark, or an error: its line says which
  2    wrong use, or a file that cannot be read as a matrix
"""
SCHEMA = """\b
Examples:
  nsa-harness matrix schema > matrix.schema.json
"""
COPY = """\b
Examples:
  nsa-harness matrix copy
  nsa-harness matrix lint matrices/*.yaml
"""


@click.group(epilog=EPILOG)
def matrix() -> None:
    """Look into matrix files, and run them."""


matrix.add_command(run)
matrix.add_command(emit)


@matrix.command(epilog=SHOW + CODES, short_help="Show axes, cells, what is left out, what it costs.")
@FILES
@click.option("--all", "show_all", is_flag=True, help=f"Every cell, not only the first {MOST_CELLS}.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per file on standard output.")
def show(files: tuple[Path, ...], *, show_all: bool, as_json: bool) -> None:
    """Show axes, cells, what is left out and why, and what it is expected to cost."""
    from harness.spec.matrix import load_matrix

    for path in files:
        plan = _plan(load_matrix(path).matrix)
        text = "\n".join(_text(plan, most=None if show_all else MOST_CELLS))
        click.echo(json.dumps(plan, indent=1)) if as_json else say(text)


@matrix.command(epilog=LINT, short_help="Find what is allowed in a file and still looks wrong.")
@FILES
@click.pass_context
def lint(ctx: click.Context, files: tuple[Path, ...]) -> None:
    """Find what is allowed in a file and still looks wrong, with its line."""
    from harness.spec.matrix import load_matrix
    from harness.spec.matrix_lint import lint as lint_file

    today = _today()
    remarks: list[Lint] = []
    for path in files:
        remarks += lint_file(load_matrix(path), today=today)
    for remark in remarks:
        say(str(remark))
    if remarks:
        ctx.exit(ExitCode.FINDINGS)


@matrix.command(epilog=SCHEMA + CODES, short_help="Print the JSON Schema of matrix files.")
def schema() -> None:
    """Print the JSON Schema of matrix files, for editors.

    \b
    Put this into the first line of a matrix file:
      # yaml-language-server: $schema=matrix.schema.json
    """
    from harness.spec.yaml_file import matrix_schema

    click.echo(matrix_schema(), nl=False)


@matrix.command(epilog=COPY + CODES, short_help="Write the example files that come with nsa-harness.")
@click.argument("folder", default="matrices", type=click.Path(file_okay=False, path_type=Path))
def copy(folder: Path) -> None:
    """Write the matrix files that come with nsa-harness, and their schema for editors, to FOLDER (default: matrices).

    A file that is there already stays as it is.
    """
    from harness.spec.yaml_file import shipped
    from harness.store.files import outside_of_runs, write_atomic

    for source in (*shipped("*.yaml"), *shipped("matrix.schema.json")):
        place = folder / source.name
        exists = place.exists()
        if not exists:
            with outside_of_runs(place):
                write_atomic(place, source.read_text(encoding="utf-8"))
        click.echo(f"{place}{' is there already: kept' if exists else ''}")


def _plan(matrix: Matrix) -> dict[str, Any]:
    """Everything that ``show`` says, ready for JSON."""
    from harness.search.cells import forbidden_cells, planned_cells
    from harness.search.constraints import count_cells
    from harness.search.strategies import strategy_of
    from harness.spec.questions import search_spec

    space, planned = matrix.space, planned_cells(matrix)
    number, exact = count_cells(space)
    trials = len(planned) * matrix.passes
    searches: list[dict[str, str]] = []
    for entry in matrix.searches:
        plan = strategy_of(search_spec(matrix, entry.name, file="")).estimate().text
        searches.append({"name": entry.name, "kind": entry.kind.value, "plan": plan})
    return {
        "name": matrix.name,
        "description": matrix.description,
        "tags": list(matrix.tags),
        "axes": list(map(_axis, space.factors)),
        "rules": list(map(str, space.rules)),
        "constraints": [
            {"when": dict(rule.when.terms), "require": None if rule.require is None else dict(rule.require.terms)}
            for rule in space.rules
        ],
        "product": math.prod(len(factor.axis.values) for factor in space.factors),
        "valid": number,
        "valid_is_exact": exact,
        "strategy": matrix.strategy.value,
        "cells": [_cell(matrix, cell) for cell in planned],
        "left_out": [{"cell": space.name_of(cell), "rule": str(rule)} for cell, rule in forbidden_cells(matrix)],
        "trials": trials,
        "budget_seconds": matrix.effort.max_seconds,
        "budget_trials": matrix.effort.max_trials,
        "searches": searches,
    }


def _axis(factor: Factor) -> dict[str, Any]:
    return {
        "name": factor.name,
        "type": factor.axis.type.value,
        "values": list(factor.axis.values),
        "good": factor.good,
        "bad": factor.bad,
        "priority": factor.priority,
    }


def _today() -> dt.date:
    return dt.datetime.now(tz=dt.UTC).date()


def _cell(matrix: Matrix, cell: Any) -> dict[str, Any]:
    from harness.search.tables import in_force

    expected, limits = in_force(matrix, cell, today=_today()), matrix.limits_at(cell)
    return {
        "id": matrix.space.name_of(cell),
        "expected": None if expected is None else expected.kind.value,
        "signature": None if expected is None else expected.signature,
        "gpus": matrix.gpus_at(cell),
        "stall_s": limits.stall_s,
        "total_s": limits.total_s,
    }


def _text(plan: dict[str, Any], *, most: int | None) -> list[str]:
    lines = [f"{plan['name']}: {plan['description']}".rstrip(": ")]
    lines += [f"tags: {', '.join(plan['tags'])}"] if plan["tags"] else []
    lines += ["", "axes (good -> bad):"]
    for axis in plan["axes"]:
        values = list(map(word_of, axis["values"]))
        listing = ", ".join(values) if len(values) <= 10 else f"{values[0]} .. {values[-1]} ({len(values)} values)"
        way = " -> ".join(dict.fromkeys((word_of(axis["good"]), word_of(axis["bad"]))))
        lines.append(f"  {axis['name']:<20} {axis['type']:<12} {way:<24} {listing}")
    bound = "" if plan["valid_is_exact"] else "at most "
    rules = count(len(plan["rules"]), "rule")
    allowed = f", {bound}{plan['valid']:,} of them allowed by {rules}" if plan["rules"] else ""
    lines += ["", f"{plan['product']:,} combinations{allowed}"]
    lines += [f"  {rule}" for rule in plan["rules"]]
    cells = plan["cells"]
    lines += ["", f"strategy {plan['strategy']}: {len(cells)} cells, {plan['trials']} trials"]
    for cell in cells[:most]:
        expected = f"expected {cell['expected']}" if cell["expected"] else ""
        signature = f" ({cell['signature']})" if cell["signature"] else ""
        lines.append(f"  {cell['id']:<50} {expected}{signature}".rstrip())
    if most is not None and len(cells) > most:
        lines.append(f"  .. and {len(cells) - most} more; see them with --all")
    lines += [f"  left out: {row['cell']}: {row['rule']}" for row in plan["left_out"]]
    lines += [
        "",
        "cost: how long it takes is known once a trial has passed; matrix run FILE --dry-run counts earlier runs in",
    ]
    for search in plan["searches"]:
        lines.append(f"search {search['name']} ({search['kind']}): {search['plan']}")
    return lines
