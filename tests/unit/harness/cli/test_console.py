"""What a person sees of a search on a terminal: read as the terminal shows it, not as it was written."""

from __future__ import annotations

import io
import re
import shlex

import click
import pytest

from harness.cli.console import LiveScreen, PlainScreen, outcome_line, result, screen, themed
from harness.cli.fitting import fitting
from harness.core.boundary import PlanEstimate
from harness.core.evidence import Measurement
from harness.core.outcome import Ending, Outcome
from harness.core.point import Point
from harness.core.record import TrialRecord
from harness.core.trial import Budget, Limit, Trial
from harness.core.verdict import Answer, Confidence, Kind, Verdict
from harness.report.text import command, wrap


class Terminal(io.StringIO):
    """A stream that is a terminal; ``shown`` is what stands on its screen."""

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> list[str]:
        rows, row = [""], 0
        for token in re.findall(r"\x1b\[\d*[A-Za-z]|\r|\n|[^\x1b\r\n]+", self.getvalue()):
            if token == "\n":
                row += 1
                rows += [""] * (row + 1 - len(rows))
            elif token.startswith("\x1b[") and token.endswith("A"):
                row -= int(token[2:-1])
            elif token == "\x1b[J":
                rows = [*rows[:row], ""]
            elif not token.startswith(("\x1b", "\r")):
                rows[row] += token
        return [line for line in rows if line]


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


def test_what_moves_stands_below_what_stays_and_leaves_nothing(terminal):
    with LiveScreen(terminal, colours=False) as live:
        live.opened(question="from when?", directory="runs/x", resumed=1)
        live.planned(PlanEstimate(trials=4, hangs=1, seconds_low=1, seconds_high=2, text="about four"))
        live.watched({"elapsed_s": 0.5, "phase": "forward", "step": 3})
        live.watched({"elapsed_s": 9.5, "silence_s": 5.0, "note": "silent: looking"})
        during = terminal.shown
    assert during[:3] == ["from when?", "run directory: runs/x (resumed: 1 trial kept)", "plan: about four"]
    assert during[3].endswith("running 9.5 s  start-up  silent 5.0 s")
    assert during[4] == "     silent: looking"
    assert during[5].startswith("searching ─")
    assert during[5].endswith("0 of about 4 trials  1-2 s left")
    assert len(during) == 6
    assert terminal.shown == during[:3]
    assert terminal.getvalue().endswith("\x1b[J\n"), "a blank line parts the trials from the answer"


LIMIT = Limit(seconds=1.0, source="default")
TRIAL = Trial(
    target="nsa", point=Point(), repeat=0, role="search", config={"trial.repeat": 0}, seed=0, code="c", machine="m",
    budget=Budget(startup=LIMIT, stall=LIMIT, total=LIMIT),
)  # fmt: skip


def test_a_trial_may_be_called_by_the_words_of_the_moving_line(terminal):
    with LiveScreen(terminal, label=lambda _: "mode=is running, starting") as live:
        live.started(TRIAL, number=1, reason="search")
        live.watched({"elapsed_s": 0.5})
        live.watched({"elapsed_s": 1.5})
        assert terminal.shown[0].startswith("  1  mode=is running, starting          running 1.5 s")


def test_a_long_name_leaves_the_verdict_in_its_column():
    record = TrialRecord(
        trial=TRIAL,
        outcome=Outcome(ending=Ending.EXITED, duration_s=1.5),
        measurement=Measurement(),
        verdict=Verdict(kind=Kind.PASS, confidence=Confidence.PROOF, rule="passed", because="exit status 0", cites=()),
        answer=Answer.GOOD,
        started_at="2026-11-25T00:00:00",
    )
    short = outcome_line(record, number=1, label=lambda _: "amp=1")
    name = "amp=1,compile=1,fused=1,overlap=1,zero=1"
    first, second = outcome_line(record, number=2, label=lambda _: name).split("\n")
    assert first == f"  2  {name}"
    assert second.index("PASS") == short.index("PASS")


def test_a_line_is_drawn_again_only_when_it_is_another(terminal):
    with LiveScreen(terminal) as live:
        live.watched({"elapsed_s": 0.5})
        once = terminal.getvalue()
        live.watched({"elapsed_s": 0.5})
        assert terminal.getvalue() == once


def test_a_moving_line_is_never_wider_than_the_terminal(terminal):
    with LiveScreen(terminal) as live:
        live.current = "  1  x"
        live.watched({"phase": "p" * 500})
        assert max(map(len, terminal.shown)) < 80


@pytest.mark.parametrize(("term", "kind"), [("xterm", LiveScreen), ("dumb", PlainScreen), (None, PlainScreen)])
def test_only_a_terminal_that_can_move_its_cursor_gets_lines_that_move(terminal, monkeypatch, term, kind):
    monkeypatch.delenv("TERM", raising=False)
    if term:
        monkeypatch.setenv("TERM", term)
    assert type(screen(stream=terminal)) is kind
    assert type(screen(stream=io.StringIO())) is PlainScreen


SCREEN = """HANG (deadlock), rank 0  (confidence: high; after 7.4 s)
  rank 0 silent for 6.1 s in backward of step 1

where it was:
  => acquire_forever (train.py:26)
     backward (train.py:40)

  12 trials in 3 min: 10 PASS, 1 SLOW, 1 HANG (deadlock)
  next: Look at acquire_forever.

report: runs/x/report.md
again:
  nsa-harness run -- python train.py"""


def test_the_theme_changes_no_word_and_makes_answer_verdict_frame_and_next_step_stand_out():
    shown = themed(SCREEN).split("\n")

    assert click.unstyle("\n".join(shown)) == SCREEN
    assert shown[0].startswith(click.style("HANG (deadlock)", fg="red", bold=True))
    assert shown[4] == click.style("  => acquire_forever (train.py:26)", bold=True)
    assert click.style("PASS", fg="green") in shown[7]
    assert shown[8].startswith("  " + click.style("next:", fg="cyan", bold=True))
    assert shown[10].startswith(click.style("report:", dim=True))
    assert shown[12] == click.style("  nsa-harness run -- python train.py", fg="cyan")
    assert shown[5] == "     backward (train.py:40)"


@pytest.mark.parametrize("asked", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}])
def test_a_result_has_no_colours_where_nobody_wants_them(terminal, monkeypatch, asked):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", terminal)
    result(lambda: SCREEN)

    assert terminal.getvalue() == f"{SCREEN}\n"


def test_a_result_has_colours_on_a_terminal_and_none_in_a_file(terminal, monkeypatch, capsys):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    result(lambda: SCREEN)
    assert capsys.readouterr().out == f"{SCREEN}\n"
    monkeypatch.setattr("sys.stdout", terminal)
    result(lambda: SCREEN)
    assert "\x1b[31m" in terminal.getvalue()


def test_a_long_line_breaks_between_words_and_a_long_cell_after_a_comma(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    cell = ",".join(f"flag_{i}=1" for i in range(6))
    shown = fitting(f"  12  record    {cell}  HANG (deadlock), 1,024 s", to=terminal)
    assert max(map(len, shown.splitlines())) <= 30
    assert "1,024 s" in shown
    assert [line[:6].strip() for line in shown.splitlines()[1:]] == [""] * (len(shown.splitlines()) - 1)
    assert "".join(shown.split()) == f"12record{cell}HANG(deadlock),1,024s"


def test_a_line_that_goes_into_a_file_is_not_broken():
    assert fitting("a word " * 40, to=io.StringIO()) == "a word " * 40


@pytest.mark.parametrize(("columns", "longest"), [("40", 40), ("", 110), ("wide", 110), ("0", 110), ("200", 110)])
def test_what_a_person_reads_is_as_wide_as_columns_says_also_where_it_is_no_terminal(
    columns, longest, monkeypatch, capsys
):
    monkeypatch.setenv("COLUMNS", columns)
    text = " ".join(["ten chars."] * 10) + "\n  a line of its own"
    result(lambda: text)
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= longest
    assert shown[-1] == "  a line of its own"
    assert " ".join(" ".join(shown).split()) == " ".join(text.split())
    assert (len(shown) > 2) is (longest == 40)


TRAINING = ("python", "train.py", "--name", "two words and more of them, a long one", "--learning-rate", "0.001")
WHY = "silent for 9 s; at 6 of 6 looks its only thread sleeps, and nothing that it could wait for moves any more"


@pytest.mark.parametrize("columns", [24, 40, 60, 80])
def test_text_is_wrapped_once_and_a_command_runs_when_pasted_however_narrow_it_is(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    result(lambda: "\n".join([*wrap(WHY, indent="  "), "again:", *command(TRAINING, indent="  "), "the end"]))
    why, _, rest = capsys.readouterr().out.partition("again:\n")
    assert why.splitlines() == wrap(WHY, width=columns, indent="  ")
    again, _, _ = rest.partition("the end")
    assert shlex.split(again.replace("\\\n", "")) == list(TRAINING)


def test_no_screen_cuts_a_word(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    path = "/a/path/of/somebody/that/is/longer/than/the/line"
    with screen(stream=terminal) as live:
        live.noted(f"see {path} for more")
    assert path in terminal.getvalue()
