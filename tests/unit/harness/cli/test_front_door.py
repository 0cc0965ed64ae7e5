"""Whatever is given at the front door, the answer is short and says where: never a traceback, never no end."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from harness.cli.exit_codes import MOST_LINES
from harness.cli.fitting import fitting
from harness.cli.main import main
from harness.core.errors import HarnessError
from harness.spec.matrix import parse_matrix
from harness.spec.questions import parse
from harness.spec.yaml_file import MOST_BYTES

MATRICES = Path(__file__).parents[4] / "matrices"

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 10)}]\n" for i in range(9)
)
HOSTILE = {
    "aliases of aliases": (f"version: 1\nname: x\n{LAUGHS}", "file.yaml:", "5000 keys and items"),
    "alias of itself": ("version: 1\nname: x\naxes: &a {n: *a}\n", "file.yaml:3", "an alias within itself"),
    "lists in lists": (f"version: 1\naxes: {'[' * 300}{']' * 300}", "file.yaml:", "levels deep"),
    "maps in maps": (f"version: 1\na: {'{a: ' * 2000}1{'}' * 2000}", "file.yaml:", "levels deep"),
    "a word as integer": ("question: x\naxis: !!int legacy\n", "file.yaml:2", "no whole number"),
    "a word as float": ("question: x\naxis: !!float x\n", "file.yaml:2", "no number"),
    "a word as bool": ("question: x\naxis: !!bool x\n", "file.yaml:2", "no true or false"),
    "a day of no calendar": ("version: 1\nname: 2020-13-45\n", "file.yaml:2", "no date"),
    "digits without end": (f"question: x\n\nseed: {'9' * 5000}\n", "file.yaml:3", "no whole number"),
    "beyond a double": ("question: x\naxis: n_layers\nseed: 99999999999999999999999\n", "file.yaml:3", "beyond"),
    "infinity": ("question: x\naxis: n_layers\neffort: {max_seconds: .inf}\n", "file.yaml:3", "beyond"),
    "too many keys": ("\n".join(f"k{i}: 1" for i in range(5_001)), "file.yaml:", "5000 keys"),
    "megabytes": ("#" * (MOST_BYTES + 1), "file.yaml", "more than"),
    "a key that is a list": ("version: 1\n? [a, b]\n: 1\n", "file.yaml:", ""),
    "no YAML": ("a: [", "file.yaml:", ""),
    "two documents": ("a: 1\n---\nb: 2\n", "file.yaml:", ""),
    "nothing": ("", "file.yaml:1", "is a mapping"),
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def nsa_harness(*argv: str) -> Result:
    return CliRunner().invoke(main, argv, prog_name="nsa-harness")


def assert_refused(done: Result) -> None:
    assert done.exit_code == 2, (done.exit_code, done.output)
    assert len(done.stderr.splitlines()) <= MOST_LINES + 3
    assert all(len(line) < 400 for line in done.stderr.splitlines()), done.stderr


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("command", [["matrix", "lint"], ["bisect", "--dry-run"], ["minimise", "--dry-run"]])
def test_a_hostile_file_is_refused_with_its_line_and_what_to_do(place, name, command):
    text, where, why = HOSTILE[name]
    (place / "file.yaml").write_text(text)

    done = nsa_harness(*command, "file.yaml")

    assert_refused(done)
    if done.stderr.startswith("nsa-harness: "):  # and not click's own word for an unknown form of the command
        assert where in done.stderr
        assert why in done.stderr
        assert "next: " in done.stderr.splitlines()[-1]


def test_what_is_no_file_is_refused_and_not_waited_for(place):
    os.mkfifo("pipe.yaml")
    Path("folder.yaml").mkdir()
    Path("loop.yaml").symlink_to("loop.yaml")
    Path("words.yaml").write_bytes(os.urandom(4000) + b"\xff")
    for name in ("pipe.yaml", "folder.yaml", "loop.yaml", "words.yaml", "/dev/zero", "x" * 5000, "a\1b"):
        for command in (["matrix", "lint"], ["bisect", "--dry-run"], ["minimise", "--dry-run"]):
            assert_refused(nsa_harness(*command, name))


@pytest.mark.parametrize(
    "option",
    [
        ("--axis", "n_layers=1..1e400"),
        ("--axis", "n_layers=1..99999999999999999999999"),
        ("--axis", f"n_layers={'9' * 5000}"),
        ("--axis", "model.d_v=1,nan"),
        ("--axis", "n_layers", "--stall", "inf"),
        ("--axis", "n_layers", "--stall", f"{'9' * 400}s"),
        ("--axis", "n_layers", "--budget", "99999999999h"),
        ("--axis", "n_layers", "--seed", "9" * 400),
        ("--axis", "n_layers", "--seed", "9" * 5000),
        ("--axis", "n_layers", "--fault", ""),
        ("--axis", "n_layers", "--set", f"model.dim={'9' * 5000}"),
        ("--axis", "n_layers", "--set", "x" * 5000),
    ],
)
def test_an_option_beyond_its_bounds_is_refused(place, option):
    assert_refused(nsa_harness("bisect", "--dry-run", *option))


def test_an_empty_fault_is_refused_beside_a_command_too(place):
    assert_refused(nsa_harness("bisect", "--dry-run", "--axis", "x=1..2", "--fault", "", "--", "true", "{x}"))


def test_a_folder_that_is_gone_is_no_reason_to_fall_over(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    done = nsa_harness("report", "--list")

    assert done.exit_code == 6, done.output
    assert "the current folder was deleted" in done.stderr


@pytest.mark.parametrize("columns", [40, 80])
def test_what_is_wrongly_used_is_said_in_lines_that_fit_the_terminal(place, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("harness.cli.fitting.fitting", lambda text, to: fitting(text, to=Terminal()))

    done = nsa_harness("matrix", "run", "nosuch.yaml")

    assert done.exit_code == 2
    lines = done.stderr.partition("Error: ")[2].splitlines()
    assert " ".join(line.strip() for line in lines) == (
        "nosuch.yaml is not there; nsa-harness matrix copy writes examples to ./matrices"
    )
    assert all(len(line) <= columns for line in lines)
    assert len("Error: " + lines[0]) <= columns


@pytest.mark.parametrize(
    ("argv", "advice"),
    [
        (["bisect", "--resume", "nope"], "See which runs there are"),
        (["bisect", "--axis", "x=1..2", "--runs", "/dev/null", "--", "true", "{x}"], "name one with --runs"),
    ],
)
def test_who_looks_in_the_wrong_place_is_not_told_to_free_space(place, argv, advice):
    done = nsa_harness(*argv)

    assert done.exit_code == 6, done.output
    assert advice in done.stderr
    assert "Free some space" not in done.stderr


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["resume"], "no such command 'resume'; it is an option of the command that began the run"),
        (["verify"], "no such command 'verify'; it is nsa-harness report --verify"),
        (
            ["bisect", "--limit", "5s", "--axis", "n=1,2", "--", "x", "{n}"],
            "'--limit'; here it is --total",
        ),
        (["run", "--total", "5s", "--", "x"], "No such option '--total'; here it is --limit"),
        (["run", "--limti", "5s", "--", "x"], "'--limit'?"),
        (["matrix", "run", "axes.yaml", "--axis", "n=1,2"], "--axis is for a question without a file"),
    ],
)
def test_a_name_that_another_command_has_is_answered_with_the_one_that_is_meant(place, argv, words):
    Path("axes.yaml").write_text("version: 1\nname: m\naxes:\n  n_layers: {type: ordered, range: [1, 4]}\n")
    done = nsa_harness(*argv)

    assert done.exit_code == 2, done.output
    assert words in " ".join(done.stderr.split())


def test_a_selection_without_a_cell_names_what_was_to_select_and_no_file_that_is_none(place):
    done = nsa_harness("matrix", "run", "--axis", "mode=a,b", "--shard", "3/3", "--", "x", "{mode}")

    assert (done.exit_code, done.stderr) == (5, "no cell was selected by --shard 3/3\n")


SEEDS = [path.read_text() for path in sorted(MATRICES.glob("*.yaml"))]


@given(st.sampled_from(SEEDS), st.lists(st.tuples(st.integers(0, 4000), st.text(max_size=4)), max_size=5))
def test_no_change_to_a_file_makes_more_than_an_error_of_ours(text, changes):
    for at, put in changes:
        text = text[:at] + put + text[at + 1 :]
    for read in (parse, parse_matrix):
        with suppress(HarnessError):
            read(text, name="file.yaml")
