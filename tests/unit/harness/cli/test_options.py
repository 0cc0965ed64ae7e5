"""Wrong use is an error with the nearest right one, before anything is run."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from harness.cli.main import COMMANDS, main
from harness.reading.pace import SUSPICIOUS_S, UNUSUAL


def run(*argv: str, **options):
    return CliRunner().invoke(main, list(argv), prog_name="nsa-harness", **options)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["bisekt"], "did you mean 'bisect'?"),
        (["bisect", "--axs", "n_layers"], "--axis"),
        (["bisect", "--axis", "n_layer"], "did you mean 'n_layers'?"),
        (["bisect", "--axis", "n_layers", "--fault", "backward-deadlok"], "did you mean 'backward-deadlock'?"),
        (["bisect", "--axis", "n_layers", "--fault", "crash@n_layer>=5"], "did you mean 'n_layers'?"),
        (["bisect", "--axis", "n_layers", "--set", "model.dmi=64"], "did you mean 'model.dim'?"),
        (["bisect", "--axis", "n_layers", "--set", "model.dim=many"], "model.dim"),
        (["bisect", "--axis", "n_layers", "--set", "model.dim"], "is not NAME=VALUE; write for example model.dim=256"),
        (["run", "--set", "layers", "--", "true"], "'layers' is not NAME=VALUE; write for example n_layers=4"),
        (["run", "--env", "FOO", "--", "true"], "'FOO' is not NAME=VALUE; write for example NCCL_DEBUG=INFO"),
        (["bisect", "--axis", "x=1,2", "--env", "FOO", "--", "true", "{x}"], "write for example NCCL_DEBUG=INFO"),
        (
            ["bisect", "--axis", "a=1..4", "--axis", "b=0,1", "--", "true", "{a}", "{b:--b}"],
            "bisect takes one --axis, not a and b: hold the others with --set NAME=VALUE",
        ),
        (["bisect", "--axis", "n_layers", "--total", "soon"], "90s"),
        (["bisect", "--axis", "n_layers", "--bad", "hangs"], "did you mean 'hang'?"),
        (["bisect", "--axis", "n_layers", "--bad", "pass"], "unknown kind of failure 'pass'"),
        (
            ["minimise", "--axis", "n_layers=1,2", "--axis", "n_heads=4,8", "--bad", "infra"],
            "unknown kind of failure 'infra'",
        ),
        (["bisect", "--axis", "n_layers", "--control", "densee"], "did you mean 'dense'?"),
        (["bisect", "--axis", "n_layers", "--set", "model.n_layers=3"], "varied by --axis n_layers"),
        (["bisect"], "--axis n_layers"),
        (["selftest", "lock-deadlok"], "did you mean 'lock-deadlock'?"),
    ],
)
def test_wrong_use_exits_2_and_names_the_nearest_right_one(argv: list[str], said: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    done = run(*argv)

    assert done.exit_code == 2, done.output
    assert said in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("command", "axes"), [("bisect", 1), ("minimise", 2), ("explore", 2)])
def test_help_and_error_of_bad_list_the_kinds_that_it_takes(command, axes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    question = (command, "--dry-run", *("--axis", "n_layers=1..2", "--axis", "n_heads=2,4")[: 2 * axes])
    listed = " ".join(run(command, "--help").output.partition("What counts as failing: ")[2].split())
    kinds = listed.partition(".")[0].split(", ")

    refused = run(*question, "--bad", "x").output.partition("Known: ")[2]
    assert refused.partition(".")[0].split(", ") == sorted(kinds)
    assert {run(*question, "--bad", kind).exit_code for kind in kinds} == {0}


def test_a_trial_without_its_cell_says_what_is_missing_and_stops_a_git_bisect(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("trial")
    assert done.exit_code == 128
    assert "Missing argument 'FILE[::CELL]'" in done.output


def test_an_unknown_variable_of_the_patient_is_an_error_with_a_suggestion(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NSA_USE_TRITON_SELL", "1")

    done = run("bisect", "--axis", "n_layers", "--dry-run")

    assert done.exit_code == 2
    assert "NSA_USE_TRITON_SEL" in done.output


def test_a_dry_run_prints_the_plan_with_its_cost_and_creates_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    done = run("bisect", "--axis", "n_layers=1..12", "--fault", "crash@n_layers>=3", "--seq-len", "128", "--dry-run")

    assert done.exit_code == 0, done.output
    assert "From which n_layers in 1..12 does training fail?" in done.output
    assert "trials" in done.output
    assert "train.seq_len=128" in done.output
    assert "fault: crash@n_layers>=3; controls: no-fault" in done.output
    assert not list(tmp_path.iterdir())


def planned_trials(*argv: str) -> int:
    return int(re.search(r"about (\d+) ", run("minimise", "--dry-run", *argv).output)[1])


def test_a_dry_run_of_minimise_counts_that_the_minimal_command_line_is_run_twice_more(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ours = planned_trials("--axis", "n_layers=1,2", "--axis", "n_heads=4,8")
    assert planned_trials("--", "true", "{amp:--amp}", "{ckpt:--ckpt}") == ours + 2


HELPS = [(name,) for name in COMMANDS]
HELPS += [("matrix", name) for name in ("copy", "emit", "lint", "run", "schema", "show")]
HELPS += [("ci", name) for name in ("annotate", "init")]


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_every_help_fits_80_columns_and_has_exit_codes_and_examples_that_are_true(words):
    text = run(*words, "--help", terminal_width=80).output

    assert [line for line in text.splitlines() if len(line) > 80] == []
    codes = text.partition("Exit codes")[2].splitlines()
    assert sum(line.lstrip()[:1].isdigit() for line in codes) > 1
    examples = text.partition("Examples:")[2].partition("\n\n")[0].replace("\\\n", " ")
    mine = re.findall(rf"nsa-harness {' '.join(words)}\b(.*?)(?:\s(?:--|[|>;]|>>|&&)\s|\n|$)", examples)
    known = re.findall(r"--[a-z][a-z-]*", text.partition("Options:")[2].partition("Examples:")[0])
    assert mine
    assert {option for line in mine for option in re.findall(r"(?<=\s)--[a-z-]+", line)} <= set(known)


@pytest.mark.parametrize("columns", [50, 60, 80])
@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_no_help_is_broken_within_an_option_or_a_name(words, columns):
    text = run(*words, "--help", terminal_width=columns).output

    assert [line for line in text.splitlines() if re.search(r"\w-$", line)] == []


def test_the_prose_of_runs_help_fits_a_narrow_terminal():
    text = run("run", "--help", terminal_width=60).output.partition("Progress is seen")[2].partition("Exit codes")[0]
    assert "PYTHONUNBUFFERED=1" in text
    assert [line for line in text.splitlines() if len(line) > 60] == []


def test_the_help_of_run_names_the_silence_from_which_ctrl_c_looks_into_it():
    text = " ".join(run("run", "--help").output.partition("Ctrl-C while")[2].split())
    assert f"silent for {SUSPICIOUS_S:g} s, and for {UNUSUAL:g} times its longest silence before" in text


def test_the_first_help_fits_80_columns_and_names_every_command():
    text = run("--help", terminal_width=80).output

    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert all(f"\n  {name}" in text for name in COMMANDS)


def test_the_tables_of_axes_and_faults_can_be_listed():
    assert "model.n_layers" in run("bisect", "--list-axes").output
    assert "backward-deadlock" in run("bisect", "--list-faults").output


@pytest.mark.parametrize(
    ("argv", "said", "step"),
    [
        (["report", "nosuch"], "there is no run nosuch, neither from here nor in", "report --list"),
        (["status", "runs/nosuch"], "there is no run runs/nosuch, neither from here nor in", "report --list"),
        (["status"], "no run in", "report --list"),
        (["matrix", "lint", "open.yaml"], "open.yaml:2: expected ',' or ']'", "matrix schema"),
        (
            ["matrix", "lint", "bytes.yaml"],
            "bytes.yaml: cannot be read as a matrix file: it is not text",
            "matrix copy",
        ),
        (
            ["matrix", "show", "near.yaml"],
            "near.yaml:3: unknown setting 'n_layrs'; did you mean 'n_layers'?\n",
            "matrix copy",
        ),
        (["trial", "one.yaml::n_layer=5"], "unknown axis 'n_layer'; did you mean 'n_layers'?", "--help"),
        (["bisect", "--axis", "n_layer"], "unknown setting 'n_layer'", "--list-axes"),
        (["bisect", "--axis", "n_layers", "--fault", "crsh"], "unknown specimen 'crsh'", "--list-faults"),
        (["run", "--progress", "step (", "--", "true"], "'step (' is no regular expression", "--help"),
        (["bisect", "--axis", "layers=4..1", "--", "true", "{layers}"], "4..1 runs down", "--help"),
        (["bisect", "--axis", "layers=1,2,2", "--", "true", "{layers}"], "lists a value twice", "--help"),
        (["minimise", "--bad", "nonfinite", "--", "true", "{a:--a}"], "nonfinite is for our own trainer", "--help"),
        (["bisect", "--axis", "n_layers", "--bad", "xyz"], "unknown kind of failure 'xyz'", "--help"),
        (["bisect", "gone.yaml"], "gone.yaml: cannot be read as a question file: No such file", "matrix copy"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_says_what_happened_where_and_what_to_do_about_it(argv, said, step, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "open.yaml").write_text("a: [1\n")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "near.yaml").write_text("version: 1\nname: x\naxes: {n_layrs: {type: ordered, values: [1, 2]}}\n")
    (tmp_path / "one.yaml").write_text("question: Which?\naxis: n_layers=1..12\n")

    done = run(*argv)

    assert done.exit_code in (2, 6, 128)
    assert said in done.output
    assert step in done.output.partition("next: ")[2]
