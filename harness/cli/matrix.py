"""nsa-harness matrix: what a matrix file means, before anything runs."""

from __future__ import annotations

import datetime as dt
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.exit_codes import ExitCode
from harness.cli.fitting import say
from harness.cli.matrix_emit import emit
from harness.cli.matrix_run import run
from harness.cli.options import FILES
from harness.core.point import word_of
from harness.report.text import count

if TYPE_CHECKING:
    from harness.core.matrix import Matrix
    from harness.core.space import Factor
    from harness.spec.matrix_lint import Lint

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
