"""What is said before click is imported: the table of commands, the first help, and the list of runs.

Importing click takes three and a half times as long as starting Python. Who asks what there is, or completes a word,
waits at a prompt; both are answered from here, by the same words and functions that the whole command line uses.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from harness.cli.exit_codes import ExitCode

COMMANDS = {
    "bisect": ("harness.cli.searches:bisect", "Find from which value of an axis training fails."),
    "run": ("harness.cli.run:run", "Run any program supervised: progress, verdict, report."),
    "selftest": ("harness.cli.selftest:selftest", "Run every known fault here; expected verdict against got."),
    "matrix": ("harness.cli.matrix:matrix", "Show, check and run matrix files: many cells, each with its expectation."),
    "ci": ("harness.cli.ci:ci", "Write a CI workflow that runs matrix files; print a run as annotations."),
    "minimise": ("harness.cli.searches:minimise", "Find the settings that a failure needs."),
    "explore": ("harness.cli.searches:explore", "Try every pair of settings; find what each failure needs."),
    "trial": ("harness.cli.trial:trial", "Run one cell; for git bisect run: 0 good, 1 bad, 125 skip."),
    "report": ("harness.cli.report:report", "Write the report of a run again, from its journal."),
    "classify": ("harness.cli.classify:classify", "Judge the recorded evidence of a run again."),
    "watch": ("harness.cli.watch:watch", "Judge a job that is already running: does it hang, where, which rank."),
    "guard": ("harness.cli.guard:guard", "Watch running jobs for weeks; tell once of each hang, with its report."),
    "stacks": ("harness.cli.stacks:stacks", "Where every rank of a running job is, and whether it moves."),
    "recorder": ("harness.cli.recorder:recorder", "Where ranks part, from a folder of flight-recorder dumps."),
    "status": ("harness.cli.journal:status", "Where a run stands and what it asks next."),
    "log": ("harness.cli.journal:log", "Every event of a run."),
    "replay": ("harness.cli.journal:replay", "Play a run's journal through a fresh search; runs nothing."),
    "undo": ("harness.cli.journal:undo", "Take the last answers of a run back."),
    "skip": ("harness.cli.journal:skip", "Leave a cell out of a run."),
    "mark": ("harness.cli.journal:mark", "Say how a cell ends without running it."),
    "graph": ("harness.cli.journal:graph", "The cells that a run tried, as text or for Graphviz."),
    "fsck": ("harness.cli.journal:fsck", "Prove that a run is as it was written; save what stands of a damaged one."),
    "doctor": ("harness.cli.doctor:doctor", "Check this machine: py-spy, ptrace, bytecode, leftovers."),
}
"""Name, where it is, and what it does."""

ABOUT = """\
Tell hung from slow from crashed, with evidence, and find where it begins.

Runs training as supervised trials on this machine, captures the stacks before
anything is ended, and answers no more strongly than the evidence carries.
Needs no network and no GPU.
"""

EPILOG = """\
Examples:
  nsa-harness bisect --axis n_layers
  nsa-harness bisect --axis n_layers --fault 'backward-deadlock@n_layers>=5'
  nsa-harness run -- torchrun --nproc-per-node 2 train.py
  nsa-harness selftest

Exit codes are in the --help of each command. The same everywhere: 70 is a
mistake of ours and never an answer, 130 is Ctrl-C.

Shell completion in bash (also zsh_source, and fish_source | source):
  eval "$(_NSA_HARNESS_COMPLETE=bash_source nsa-harness)"
"""

OPTIONS = (("--version", "Show the version and exit."), ("-h, --help", "Show this message and exit."))

WIDEST = 80


def help_text(columns: int = WIDEST) -> str:
    """The first help, in lines that fit into ``columns``; 80 are the most."""
    width = max(min(columns, WIDEST), 40)
    commands = [(name, text) for name, (_, text) in COMMANDS.items()]
    parts = [
        "Usage: nsa-harness [OPTIONS] COMMAND [ARGS]...",
        "",
        *_indented(ABOUT),
        "",
        "Options:",
        *_rows(OPTIONS, width),
        "",
        "Commands:",
        *_rows(commands, width),
        "",
        *_indented(EPILOG),
    ]
    return "\n".join(parts)


def _indented(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in text.splitlines()]


def _rows(pairs: Iterable[tuple[str, str]], width: int) -> list[str]:
    lines: list[str] = []
    for name, text in pairs:
        line = f"  {name:<10}"
        for word in text.split():
            if len(line) + 1 + len(word) > width:
                lines.append(line)
                line = " " * 12
            line += f" {word}"
        lines.append(line)
    return lines


def answered(argv: Sequence[str]) -> int | None:
    """The exit status where ``argv`` asks for the first help or a list of runs, which is then printed; else None."""
    if list(argv) in (["--help"], ["-h"]):
        return _helped()
    if tuple(argv[:2]) == ("report", "--list") and (len(argv) == 2 or (len(argv) == 4 and argv[2] == "--runs")):
        sys.modules.setdefault("inspect", _Later("inspect"))
        from harness.cli.exit_codes import tell
        from harness.cli.streams import standing
        from harness.settings import Settings

        with standing():
            try:
                return list_runs(Settings.read(runs=argv[3] if len(argv) == 4 else None).runs)
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - as the command line does
                return tell(error)
    return None


class _Later(ModuleType):
    """A module that is read at its first use: ``dataclasses`` imports ``inspect``, and does not use it for a list.

    On Python 3.11 that is a sixth of the list's time; later ones do use it. (What ``importlib.util.LazyLoader`` makes
    is read by the next import of it.)
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def _helped() -> int | None:
    """0 with the help printed; None where that fails, for the command line to say how."""
    try:
        columns = os.get_terminal_size(1).columns if os.isatty(1) else WIDEST
        remaining = f"{help_text(columns)}\n".encode()
        while remaining:
            remaining = remaining[os.write(1, remaining) :]
    except OSError:
        return None
    return 0


def list_runs(where: Path) -> ExitCode:
    """Print the runs in ``where``, newest first; on a terminal a line of question and one of answer each."""
    from harness.cli.exit_codes import ExitCode
    from harness.cli.fitting import HANGING, fitting, in_one_line
    from harness.store.shelf import list_runs

    rows = list_runs(where)
    for row in rows:
        lines = [str(row)]
        if not row.problem and sys.stdout.isatty():
            question = in_one_line(f"{row.name}  {row.question}", to=sys.stdout)
            lines = [question, in_one_line(f"{HANGING}{row.ending}", to=sys.stdout)]
        for line in lines:
            sys.stdout.write(f"{fitting(line, to=sys.stdout)}\n")
    if not rows:
        sys.stderr.write(f"no runs in {where}\n")
    return ExitCode.OK if rows else ExitCode.NOTHING
