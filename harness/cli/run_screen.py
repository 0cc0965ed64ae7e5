"""What a person sees while one program runs: a moving line on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import codecs
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

import click

from harness.cli.streams import cleaned, uncleaned
from harness.observe.progress import STREAMS, OutputReader
from harness.report.text import named_path, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.core.boundary import PlanEstimate
    from harness.core.record import TrialRecord
    from harness.core.trial import Trial

WIDTH = 79
EVERY_S = 10.0
"""How often a line is written where nothing can move."""

INDENT = " " * 7
LATER = 1.5
"""Each such line comes this many times later than the one before: a run of a day needs few."""


class RunScreen:
    """Follows one trial after another. ``folder`` is the run directory; with ``echo``, the program's own output."""

    def __init__(self, *, folder: Path, repeats: int, echo: bool) -> None:
        self.folder, self.repeats, self.echo = folder, repeats, echo
        self.moves = sys.stderr.isatty()
        self.readers: list[tuple[OutputReader, codecs.IncrementalDecoder]] = []
        self.next_s = EVERY_S
        self.has_moving_line = False

    def __enter__(self) -> RunScreen:
        for line in named_path("run directory", self.folder, width=shutil.get_terminal_size().columns):
            click.echo(line, err=True)
        return self

    def __exit__(self, *_: object) -> None:
        """On a terminal a blank line parts all this from the answer."""
        self._clear()
        if self.moves:
            click.echo(err=True)

    def opened(self, *, question: str, directory: str, resumed: int) -> None:
        """Nothing: the run directory was named already."""

    def noted(self, text: str) -> None:
        """Nothing: every run is its own."""

    def planned(self, estimate: PlanEstimate) -> None:
        """Nothing: there is no search."""

    def started(self, trial: Trial, *, number: int, reason: str) -> None:
        """The run's number where there are several."""
        self.next_s = EVERY_S
        place = self.folder / "trials" / trial.key
        utf8 = codecs.getincrementaldecoder("utf-8")
        self.readers = [(OutputReader(place, stream), utf8("replace")) for stream in STREAMS] if self.echo else []
        if self.repeats > 1:
            self._line(reason)

    def watched(self, facts: Mapping[str, object]) -> None:
        """Where it is; what is being done about a silence."""
        self._echo()
        if facts.get("note"):
            self._line(f"{_number(facts, 'elapsed_s'):.1f} s  {facts['note']}")
        elif self.moves:
            self._move(cleaned(progress(facts)))
            self.has_moving_line = True
        elif _number(facts, "elapsed_s") >= self.next_s:
            self.next_s *= LATER
            self._line(progress(facts))

    def judged(self, record: TrialRecord, *, number: int) -> None:
        """Its verdict where there are several."""
        self._echo()
        self._clear()
        if self.repeats > 1:
            self._line(f"  {record.verdict}  {record.outcome.duration_s:.1f} s")

    def _echo(self) -> None:
        for (reader, utf8), stream in zip(self.readers, (sys.stdout, sys.stderr), strict=False):
            if text := utf8.decode(reader.new()):
                self._clear()
                click.echo(text, nl=False, file=stream)

    def _line(self, text: str) -> None:
        self._clear()
        columns = shutil.get_terminal_size().columns - 1
        lines = textwrap.wrap(text, columns, subsequent_indent=INDENT) if self.moves else [text]
        for line in lines or [""]:
            click.echo(line, err=True)

    def _clear(self) -> None:
        if self.has_moving_line:
            self._move("", then="\r")
            self.has_moving_line = False

    def _move(self, text: str, *, then: str = "") -> None:
        """``text`` over what stands in the line."""
        out, width = uncleaned(sys.stderr), min(WIDTH, shutil.get_terminal_size().columns - 1)
        out.write(f"\r{text[:width]:<{width}}{then}")
        out.flush()


def progress(facts: Mapping[str, object]) -> str:
    """``12 s  41 of 100 steps, after backward of step 41, silent for 3.2 s``.

    Where the user set a limit for stalls that does not count before a step is seen, a silence says which one does.
    """
    parts: list[str] = []
    done, total = facts.get("steps_done"), facts.get("steps_wanted")
    if done or total:
        parts.append(f"{done} of {total} steps" if total else "1 step" if done == 1 else f"{done} steps")
    parts.append("starting" if facts.get("phase") is None else f"{facts['place']}")
    if _number(facts, "silence_s") > 1:
        parts.append(f"silent for {seconds(_number(facts, 'silence_s'))}")
        if facts.get("startup_s") is not None:
            parts.append(f"no step seen: --startup ({_number(facts, 'startup_s'):g} s) counts")
    return f"{seconds(_number(facts, 'elapsed_s'))}  {', '.join(parts)}"


def _number(facts: Mapping[str, object], name: str) -> float:
    value = facts.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
