"""A stranger's command line as a target: placeholders, environment, and what of it is written down."""

from __future__ import annotations

import json

import pytest

from harness.core.command_line import CommandLine, at_commit, composed, difference, placeholders
from harness.core.errors import CommandError, SpecError
from harness.core.point import Point
from harness.core.spec import Limits
from harness.core.trial import Trial
from harness.plan.predict import budget
from harness.targets import TARGETS
from harness.targets.script import SHIM


@pytest.fixture
def target():
    return TARGETS.load("command")(python="/our/python")


def trial_of(target, settings, **more):
    return Trial(
        target="command",
        point=Point.of({}),
        repeat=0,
        role="search",
        config=target.config(settings),
        seed=0,
        code="c",
        machine="m",
        budget=budget(Limits(), None),
        **more,
    )


def test_placeholders_become_values_and_nothing_else_changes(target, tmp_path):
    settings = {
        "command": "python 'my train.py' --layers {n_layers} --opt={opt}",
        "args.n_layers": 4,
        "args.opt": "sgd",
    }
    command = target.command(trial_of(target, settings), trial_dir=tmp_path, env={})

    assert command.argv == ("python", "my train.py", "--layers", "4", "--opt=sgd")
    assert command.entry is None


@pytest.mark.parametrize(
    ("value", "text"), [(1e-4, "0.0001"), (0.1 + 0.2, "0.30000000000000004"), (2.0, "2"), (True, "true"), (7, "7")]
)
def test_numbers_are_spelt_without_loss(target, value, text):
    assert composed(target.config({"command": "x {v}", "args.v": value}), python="").argv == ("x", text)


def test_braces_that_are_no_placeholder_stay(target):
    config = target.config({"command": """x '{"lr": 1}' {} {{rank}} {n}""", "args.n": 1})

    assert composed(config, python="").argv == ("x", '{"lr": 1}', "{}", "{rank}", "1")


def test_the_trials_interpreter_and_words_behind_are_taken_as_they_are():
    config = {"command": "{python} train.py", "args": {}, "more": ["{layers}"]}

    assert composed(config, python="/their/python").argv == ("/their/python", "train.py", "{layers}")


def test_a_trial_of_an_older_version_is_still_spelt():
    config = {"argv": ["{python}", "train.py", "{layers}"]}

    assert composed(config, python="/their/python").argv == ("/their/python", "train.py", "{layers}")


@pytest.mark.parametrize(
    ("word", "on", "off"),
    [
        ("{amp:--amp}", ("--amp",), ()),
        ("{amp:--amp|--no-amp}", ("--amp",), ("--no-amp",)),
        ("{amp:--amp|}", ("--amp",), ()),
        ("'{amp:--precision bf16}'", ("--precision", "bf16"), ()),
        ("{amp:model.amp=true|model.amp=false}", ("model.amp=true",), ("model.amp=false",)),
        ("--scale={amp:2}", ("--scale=2",), ()),
        ("--scale={amp:2|1}", ("--scale=2",), ("--scale=1",)),
        ("{{amp:2}}{amp:!|}", ("{amp:2}!",), ("{amp:2}",)),
    ],
)
def test_a_word_with_a_flag_is_there_or_not(target, word, on, off):
    for value, words in ((True, on), ("1", on), ("on", on), (False, off), ("false", off)):
        config = target.config({"command": f"x {word} y", "args.amp": value})
        assert composed(config, python="").argv == ("x", *words, "y")


def test_variables_in_front_are_set_for_the_program_and_flags_leave_them_out(target, tmp_path):
    settings = {"command": "A=1 B={b:2} C={c} python x D=4", "args.b": False, "args.c": "a b"}
    command = target.command(trial_of(target, settings, env=(("A", "0"), ("E", "5"))), trial_dir=tmp_path, env={})

    assert command.argv == ("python", "x", "D=4")
    env = dict(command.env)
    assert (env["A"], env.get("B"), env["C"], env["E"]) == ("1", None, "a b", "5")
    assert str(composed(target.config(settings), python="")) == "A=1 C='a b' python x D=4"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (("x", "--amp", "--ckpt"), ("x", "--ckpt"), "without --amp"),
        (("x", "--layers", "5"), ("x", "--layers", "4"), "with --layers 4"),
        (("x", "--layers=5"), ("x", "--layers=4"), "with --layers=4"),
        (("x", "--amp"), ("x", "--no-amp"), "with --no-amp"),
        (("x",), ("x", "--safe"), "with --safe"),
        (("x", "--a", "y", "--b"), ("x", "y"), "without --a and without --b"),
        (("x", "--layers", "-1"), ("x", "--layers", "-2"), "with --layers -2"),
        (("x", "ddp", "4"), ("x", "single", "4"), ""),
        (("x", "ddp", "--amp"), ("x", "single"), ""),
        (("x", "-1"), ("x", "-2"), ""),
        (("x", "4"), ("x",), ""),
        (("x",), ("x",), ""),
    ],
)
def test_what_two_command_lines_differ_in_is_said_as_one_would(before, after, said):
    assert difference(CommandLine((), before), CommandLine((), after)) == said


def test_a_command_line_at_a_commit_is_run_in_a_new_worktree_of_it():
    line = CommandLine((("A", "1"),), ("python", "a b.py"))

    assert at_commit(line, None) == ("A=1", "python", "'a b.py'")
    words = " ".join(at_commit(line, "cf795942bab3"))
    assert words == (
        '(d=$(mktemp -d) && git worktree add --detach "$d" cf795942bab3 && cd "$d" && A=1 python \'a b.py\')'
    )


def test_a_variable_that_differs_is_named():
    one, other = CommandLine((("A", "1"), ("B", "2")), ("x",)), CommandLine((("B", "3"),), ("x",))

    assert difference(one, CommandLine((("B", "2"),), ("x",))) == "without A=1"
    assert difference(one, other) == "with B=3"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"command": "x {n_layers}", "args.layers": 1}, ("{n_layers}", "--set n_layers=VALUE")),
        ({"command": "x --lr 1", "args.lr": 1}, ("lr is set", "no {lr}", "--lr {lr}")),
        ({"command": "x", "model.dim": 1}, ("unknown setting 'model.dim'",)),
        ({"steps": 4}, ("no command", "behind --")),
        ({"command": "x {a:--a}", "args.a": "maybe"}, ("a is a flag", "a=1 or a=0")),
        ({"command": "x {a:--a} {a}", "args.a": 1}, ("a value in one place and a flag in another",)),
    ],
)
def test_what_does_not_fit_together_is_said_before_anything_runs(target, settings, words):
    with pytest.raises(SpecError) as said:
        target.config(settings)

    assert all(word in str(said.value) for word in words), said.value


def test_the_program_gets_the_callers_whole_environment_less_our_own_variables(target, tmp_path):
    given = {"PATH": "/their/bin", "PYTHONPATH": "/their/lib", "MY_DATA": "/d", "NSA_HARNESS_RUNS": "/r"}
    trial = trial_of(target, {"command": "x"}, env=(("NCCL_DEBUG", "INFO"),))
    env = dict(target.command(trial, trial_dir=tmp_path, env=given).env)

    assert env["PATH"] == "/their/bin"
    assert env["MY_DATA"] == "/d"
    assert env["NCCL_DEBUG"] == "INFO"
    assert env["PYTHONPATH"] == f"{SHIM}:/their/lib"
    assert env["NSA_HARNESS_TRIAL_DIR"] == str(tmp_path)
    assert not {"NSA_HARNESS_RUNS", "PYTHONUNBUFFERED"} & set(env)


def test_values_that_change_what_runs_are_written_down_and_secrets_are_not(target, tmp_path):
    given = {"CUDA_VISIBLE_DEVICES": "1", "HF_TOKEN": "hf_abcdef123", "TORCH_API_KEY": "s3cr3t-key", "HOME": "/home/me"}
    settings = {"command": "x --token hf_abcdef123"}
    files = dict(target.command(trial_of(target, settings), trial_dir=tmp_path, env=given).files)
    kept = json.loads(files["environment.json"])

    assert kept["values"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert {"HOME", "HF_TOKEN"} <= set(kept["names of the others"])
    for text in files.values():
        assert "hf_abcdef123" not in text
        assert "s3cr3t-key" not in text
        assert "/home/me" not in text


def test_the_shims_folder_offers_a_stranger_no_module_but_its_own():
    names = {path.stem for path in SHIM.glob("*.py")}

    assert names == {"__init__", "sitecustomize", "nsa_harness_shim"}


@pytest.mark.parametrize("word", ["{fast :--fast}", "{fast:--fast", "{ fast: --fast }"])
def test_what_is_nearly_a_place_for_a_flag_is_named(word):
    with pytest.raises(CommandError, match=r"write \{fast:--fast\}"):
        placeholders(["python", "train.py", word])


def test_a_flag_with_three_words_is_an_axis_of_values():
    with pytest.raises(CommandError, match=r"has 3 words, .* write \{size\} .* --axis size=.* literal .* \{\{size:--a"):
        placeholders(["python", "train.py", "{size:--a 1|--a 2|--a 3}"])
    assert placeholders(["{{size:--a 1|--a 2|--a 3}}"]) == ()


@pytest.mark.parametrize(
    ("word", "names"), [("{{fast :--fast}}", []), ('{"lr": 1}', []), ("f'{x:}'", []), ("{fast:--fast}", ["fast"])]
)
def test_what_only_has_braces_is_not(word, names):
    assert [place.name for place in placeholders(["python", "train.py", word])] == names
