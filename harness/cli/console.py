"""What a person sees: while a command runs a live table on a terminal, plain lines elsewhere; at its end the answer.

Progress goes to standard error, results to standard output. One theme for all commands: the answer is bold, verdicts
have their colour wherever they stand, the frame to look at and the next step stand out, labels step back. It is laid
over finished text by its shape, so a result is the same text without colours, in a file and in a pipe; it decides
nothing.
"""

from __future__ import annotations

import codecs
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

import click

from harness.cli.fitting import for_reading
from harness.cli.streams import cleaned, uncleaned
from harness.core.verdict import Kind
from harness.report.text import count, named_path, seconds, wrap
from harness.settings import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from harness.core.boundary import PlanEstimate
    from harness.core.ports import Screen
    from harness.core.record import TrialRecord
    from harness.core.trial import Trial
    from harness.observe.progress import OutputReader


Label: TypeAlias = "Callable[[Trial], str]"
"""Names the place of a trial."""

PLACE = 34
"""Columns of a trial's place in the list of trials."""

BAR = 24

RED: dict[str, Any] = {"fg": "red", "bold": True}

STYLES: dict[Kind, dict[str, Any]] = {
    Kind.PASS: {"fg": "green"},
    Kind.HANG: RED,
    Kind.CRASH: RED,
    Kind.OOM: RED,
    Kind.NONFINITE: RED,
    Kind.SLOW: {"fg": "yellow"},
    Kind.BELOW_TARGET: {"fg": "yellow"},
    Kind.INFRA: {"fg": "magenta"},
    Kind.UNRESOLVED: {"fg": "yellow"},
}


VERDICT = re.compile(rf"\b({'|'.join(STYLES)})\b(?: \([a-z][\w-]*\))?")
LABEL = re.compile(r"^(?:[a-z][a-z ]*:|run directory:|last lines of \w+:)(?= |$)")
NEXT = re.compile(r"^( *)(next:|to decide:)")
FRAME = re.compile(r"^ *=> ")
COMMAND_AFTER = ("again:", "reproduce:", "the program's own command line")


def has_colours(stream: TextIO) -> bool:
    """Whether a person looks at ``stream``, and has not asked for none."""
    environment = dict(surroundings())
    return stream.isatty() and environment.get("TERM") not in (None, "", "dumb") and not environment.get("NO_COLOR")


def themed(text: str) -> str:
    """``text``, which is clean, with what matters most standing out; without the colours it is the same text."""
    lines: list[str] = []
    is_answer, is_command = True, False
    for line in text.split("\n"):
        is_answer = is_answer and bool(line) and not line.startswith(" ")
        lines.append(_themed(line, is_answer=is_answer, is_command=is_command))
        is_command = line.startswith(COMMAND_AFTER) or (is_command and line.startswith("  "))
    return "\n".join(lines)


def _themed(line: str, *, is_answer: bool, is_command: bool) -> str:
    if is_command and line.startswith("  "):
        return click.style(line, fg="cyan")
    if FRAME.match(line):
        return click.style(line, bold=True)
    step = NEXT.match(line)
    if step:
        return f"{step[1]}{click.style(step[2], fg='cyan', bold=True)}{line[step.end() :]}"
    label = None if is_answer else LABEL.match(line)
    if label:
        return f"{click.style(label[0], dim=True)}{line[label.end() :]}"
    return _coloured(line, {"bold": True} if is_answer else {})


def _coloured(line: str, base: dict[str, Any]) -> str:
    """``line`` in the style ``base``, each verdict in it in its own colour."""
    parts: list[str] = []
    at = 0
    for verdict in VERDICT.finditer(line):
        parts += [_plain(line[at : verdict.start()], base), click.style(verdict[0], **base | STYLES[Kind(verdict[1])])]
        at = verdict.end()
    return "".join([*parts, _plain(line[at:], base)])


def _plain(text: str, style: dict[str, Any]) -> str:
    return click.style(text, **style) if text and style else text


def screen(*, stream: TextIO | None = None, quiet: bool = False, label: Label | None = None) -> Screen:
    """The screen that fits ``stream`` (standard error): live on a terminal, plain lines elsewhere.

    ``label`` names a trial's place in a few words; the default is its whole point.
    """
    out = stream or sys.stderr
    if not quiet and out.isatty() and dict(surroundings()).get("TERM") not in (None, "", "dumb"):
        return LiveScreen(out, label=label or point_of, colours=has_colours(out))
    return PlainScreen(out, label=label or point_of)


def point_of(trial: Trial) -> str:
    """The whole point of a trial."""
    return str(trial.point)


def where(trial: Trial, *, label: Label = point_of) -> str:
    """The place of a trial in a few words, with its role when it is not the search itself."""
    role = {"search": "", "certify": "  again, to certify", "confirm": "  again, to confirm"}
    return f"{label(trial)}{role.get(trial.role, f'  {trial.role}')}"


def outcome_line(record: TrialRecord, *, number: int, label: Label = point_of) -> str:
    """One finished trial on one line."""
    verdict = record.verdict
    place, ended = where(record.trial, label=label), f"{verdict!s:<18} {record.outcome.duration_s:6.1f} s"
    head = f"{number:>3}  {place:<{PLACE}} {ended}"
    if len(place) > PLACE:  # a long name has a line of its own, or the columns would not stand
        head = f"{number:>3}  {place}\n{' ' * (PLACE + 6)}{ended}"
    return head if verdict.kind is Kind.PASS else f"{head}\n       {verdict.because}"


def _resumption(resumed: int) -> str:
    return f" (resumed: {count(resumed, 'trial')} kept)" if resumed else ""


class PlainScreen:
    """Lines for logs and pipes: one when a trial ends, nothing that moves."""

    def __init__(self, out: TextIO, *, label: Label = point_of) -> None:
        self.out = out
        self.label = label
        self.planned_with: PlanEstimate | None = None

    def __enter__(self) -> PlainScreen:
        return self

    def __exit__(self, *_: object) -> None:
        self.out.flush()

    def opened(self, *, question: str, directory: str, resumed: int) -> None:
        """Two lines: the question, the place."""
        self._line(question)
        self._line(f"run directory: {directory}" + _resumption(resumed))

    def noted(self, text: str) -> None:
        """The note, in as many lines as it needs."""
        for line in wrap(text):
            self._line(line)

    def planned(self, estimate: PlanEstimate) -> None:
        """The plan in one line before the first trial, and once more when a first one has told its seconds."""
        if self.planned_with is None or (estimate.is_measured and not self.planned_with.is_measured):
            self._line(f"plan: {estimate.text}")
            self.planned_with = estimate

    def started(self, trial: Trial, *, number: int, reason: str) -> None:
        """Nothing: the line comes with the verdict."""

    def watched(self, facts: Mapping[str, object]) -> None:
        """Only notes, such as the beginning of a silence that is being looked into."""
        if facts.get("note"):
            self._line(f"     {facts['note']}")

    def judged(self, record: TrialRecord, *, number: int) -> None:
        """The trial's line."""
        self._line(outcome_line(record, number=number, label=self.label))

    def _line(self, text: str) -> None:
        print(text, file=self.out, flush=True)


class LiveScreen:
    """Finished trials scroll away above; below them one moving line for the running one, and a bar."""

    def __init__(self, out: TextIO, *, label: Label = point_of, colours: bool = True) -> None:
        self.label = label
        self.out = uncleaned(out)
        self.colours = colours
        self.head, self.current, self.note, self.tally = "", "", "", ""
        self.done, self.total = 0, 0
        self.has_written = False
        self.drawn: list[str] = []  # the lines that move, as they stand on the screen

    def __enter__(self) -> LiveScreen:
        return self

    def __exit__(self, *_: object) -> None:
        """Clears what moves; a blank line parts the trials from the answer."""
        self._clear()
        if self.has_written:
            self.out.write("\n")
        self.out.flush()

    def opened(self, *, question: str, directory: str, resumed: int) -> None:
        """The question in bold, the place below."""
        self._print(question, bold=True)
        self._print("\n".join(named_path("run directory", f"{directory}{_resumption(resumed)}", width=_columns())))

    def noted(self, text: str) -> None:
        """The note, wrapped."""
        self._print("\n".join(wrap(text, width=_columns())))

    def planned(self, estimate: PlanEstimate) -> None:
        """Before the first trial a line, later the bar's total."""
        if not self.done and not self.total:
            self.noted(f"plan: {estimate.text}")
        is_known = estimate.trials and estimate.is_measured
        remaining = f"{estimate.seconds_low:.0f}-{estimate.seconds_high:.0f} s left" if is_known else ""
        self.total = self.done + estimate.trials
        self.tally = f"{self.done} of about {self.total} trials  {remaining}"
        self._draw()

    def started(self, trial: Trial, *, number: int, reason: str) -> None:
        """The moving line."""
        self.head = f"{number:>3}  {where(trial, label=self.label):<34}"
        self.current = f"{self.head} starting: {reason}"
        self._draw()

    def watched(self, facts: Mapping[str, object]) -> None:
        """The moving line: phase, step, time, silence; below it what is being done about a silence."""
        text = f" running {facts.get('elapsed_s', 0.0):.1f} s  {facts.get('phase') or 'start-up'}"
        if facts.get("step") is not None:
            text += f" of step {facts['step']}"
        silence = facts.get("silence_s", 0.0)
        if isinstance(silence, float) and silence > 1.0:
            text += f"  silent {silence:.1f} s"
        self.current = self.head + text
        if facts.get("note"):
            self.note = f"     {facts['note']}"
        self._draw()

    def judged(self, record: TrialRecord, *, number: int) -> None:
        """The trial's line, coloured by its verdict, printed above the bar."""
        self.current, self.note = "", ""
        self.done += 1
        verdict = str(record.verdict)
        lines: list[str] = []
        for text in cleaned(outcome_line(record, number=number, label=self.label)).split("\n"):
            lines += wrap(text, width=_columns(), more=INDENT)
        self._above("\n".join(lines).replace(verdict, self._styled(verdict, **STYLES[record.verdict.kind]), 1))

    def _print(self, text: str, **style: Any) -> None:
        self._above(self._styled(cleaned(text), **style))

    def _styled(self, text: str, **style: Any) -> str:
        return click.style(text, **style) if self.colours else text

    def _above(self, text: str) -> None:
        self._clear()
        self.out.write(f"{text}\n")
        self.has_written = True
        self._draw()

    def _draw(self) -> None:
        most = _columns()
        filled = min(BAR, BAR * self.done // self.total) if self.total else 0
        bar = f"searching {'━' * filled}{'─' * (BAR - filled)} {self.tally}"
        lines = [cleaned(line)[:most] for line in (self.current, self.note, bar) if line]
        if lines != self.drawn:
            self._clear()
            self.out.write("\n".join(lines))
            self.out.flush()
            self.drawn = lines

    def _clear(self) -> None:
        if self.drawn:
            up = f"\x1b[{len(self.drawn) - 1}A" if len(self.drawn) > 1 else ""
            self.out.write(f"\r{up}\x1b[J")
        self.drawn = []


def _columns() -> int:
    """The columns that a line may fill: one less than there are, or a terminal may begin another."""
    return shutil.get_terminal_size().columns - 1


def result(make: Callable[[], str]) -> None:
    """The result that ``make`` returns on standard output, in the theme where a person looks at it."""
    text = for_reading(make, to=sys.stdout)
    if not has_colours(sys.stdout):
        print(text)
        return
    print(themed(cleaned(text)), file=uncleaned(sys.stdout), flush=True)


def progress(*, now: Callable[[], float], after_s: float = 2.0) -> Callable[[str], None]:
    """Says on standard error what is being done, once ``after_s`` have passed: what is done by then needs no word."""
    started_s = now()

    def note(text: str) -> None:
        if now() - started_s > after_s:
            print(f"{now() - started_s:.0f} s: {text}", file=sys.stderr, flush=True)

    return note


WIDEST = 79
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
        from harness.observe.progress import STREAMS, OutputReader

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
            self._move(cleaned(progress_of(facts)))
            self.has_moving_line = True
        elif _number(facts, "elapsed_s") >= self.next_s:
            self.next_s *= LATER
            self._line(progress_of(facts))

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
        lines = wrap(text, width=_columns(), more=INDENT) if self.moves else [text]
        for line in lines or [""]:
            click.echo(line, err=True)

    def _clear(self) -> None:
        if self.has_moving_line:
            self._move("", then="\r")
            self.has_moving_line = False

    def _move(self, text: str, *, then: str = "") -> None:
        """``text`` over what stands in the line."""
        out, width = uncleaned(sys.stderr), min(WIDEST, _columns())
        out.write(f"\r{text[:width]:<{width}}{then}")
        out.flush()


def progress_of(facts: Mapping[str, object]) -> str:
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
