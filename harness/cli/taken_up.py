"""What may stand beside ``--resume``: where its trials run, how much is shown, and what it may spend from now on."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from harness.core.errors import NotResumableError, ResumeError
from harness.core.spec import Allowance
from harness.store.runs import find_run, find_to_resume

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.core.invocation import Invocation
    from harness.core.record import Run

MAX_TRIALS, BUDGET = "--max-trials", "--budget"
ANY_TIME = frozenset(
    {"--resume", "--runs", "--json", "--jobs", "--on", "--nodes", "--gres", "--nodes-per-trial", MAX_TRIALS, BUDGET}
)
"""Options that change nothing of what is asked."""


GOES_ON = (("matrix", "run"), ("bisect",), ("minimise",), ("explore",), ("trial",))
"""Commands that ask a question, whose runs any of them takes up."""


def run_to_take_up(runs_dir: Path, name: str, typed: Invocation) -> Path:
    """The run called ``name``; for ``latest`` the last one that did not come to its end and asks what ``typed`` does.

    Raises:
        StoreError: there is none.
        SpecError: more than one may be meant.
    """
    if name != "latest":
        return find_run(runs_dir, name)
    asked = replace(typed, options=tuple(option for option in typed.options if option[0] not in ANY_TIME))
    run_dir = find_to_resume(runs_dir, asked)
    which = f"the last run of `{shlex.join(asked.argv)}` that did not come to its end"
    click.echo(f"going on with {run_dir.name}, {which}", err=True)
    return run_dir


def allowance_of(run: Run, typed: Invocation, options: Mapping[str, Any]) -> Allowance | None:
    """What ``run`` may spend in all by the command ``typed``; None where that is what it was.

    Raises:
        NotResumableError: it was only looked at, or is of one program as it is.
        ResumeError: an option would change the question, or a limit is one that the run has already reached.
    """
    _refuse_others(run, typed)
    effort = run.spec.matrix.effort
    words = dict(typed.options)
    chosen: list[tuple[str, str]] = []
    max_trials, max_seconds = options["max_trials"], options["budget"]
    if max_trials not in (None, effort.max_trials):
        trials = len(run.own)
        if max_trials <= trials:
            raise ResumeError(f"{MAX_TRIALS} {max_trials} {_reached(f'{trials} trials', f'{MAX_TRIALS} {2 * trials}')}")
        chosen.append((MAX_TRIALS, str(max_trials)))
    if max_seconds not in (None, effort.max_seconds):
        if max_seconds <= run.spent_s:
            more = f"{BUDGET} {math.ceil(2 * run.spent_s)}s"
            raise ResumeError(f"{BUDGET} {words[BUDGET]} {_reached(f'{run.spent_s:.0f} s', more)}")
        chosen.append((BUDGET, str(words[BUDGET])))
    if not chosen:
        return None
    return Allowance(max_trials=max_trials, max_seconds=max_seconds, options=tuple(chosen))


def _reached(spent: str, more: str) -> str:
    return f"counts all of the run, which has spent {spent}; give more, e.g. {more}"


def _refuse_others(run: Run, typed: Invocation) -> None:
    """ResumeError for whatever would ask another question than ``run`` does; to say the same again is fine."""
    begun = run.invocation
    if run.argv and not any(run.argv[1 : 1 + len(verb)] == verb for verb in GOES_ON):
        raise NotResumableError(f"{run.id} was begun by `{shlex.join(run.argv)}`, which cannot be gone on with")
    if any(name == "--dry-run" for name, _ in typed.options):
        where = run.directory or run.id
        raise ResumeError(f"--dry-run plans a new run; where this one stands is shown by: nsa-harness status {where}")
    for name, value in typed.options:
        if name not in ANY_TIME and (begun is None or (name, value) not in begun.options):
            raise ResumeError(f"{name} cannot be changed with --resume, which goes on with what {run.id} asks")
    for what, words, before in (
        ("a file", typed.operands, begun.operands if begun else ()),
        ("the command behind --", typed.command, begun.command if begun else ()),
    ):
        if words and words != before:
            raise ResumeError(f"{what} cannot be changed with --resume, which goes on with what {run.id} asks")
