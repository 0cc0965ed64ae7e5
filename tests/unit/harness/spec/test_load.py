from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from harness.core.campaign import threshold_question
from harness.core.errors import SpecError
from harness.spec.axes import AXES
from harness.spec.matrix_keys import QuestionKeys
from harness.spec.questions import load, parse

MATRICES = Path(__file__).parents[4] / "matrices"
HEAD = "question: why?\naxis: n_layers\n"


def test_the_smallest_question_takes_every_default():
    assert parse(HEAD, name="q.yaml") == threshold_question(question="why?", target="nsa", axis=AXES["n_layers"])


def test_fixed_settings_may_use_short_names_and_are_stored_by_path():
    spec = parse(HEAD + "fixed: {seq_len: 64, model.dim: 32}\n", name="q.yaml")
    assert dict(spec.matrix.base.config) == {"train.seq_len": 64, "model.dim": 32}


def test_numbers_and_words_are_those_of_yaml_1_2():
    spec = parse(HEAD + "fixed: {train.lr: 1e-4, train.steps: 010}\nenv: {NCCL_DEBUG: no}\n", name="q.yaml")
    assert dict(spec.matrix.base.config) == {"train.lr": 1e-4, "train.steps": 10}
    assert spec.matrix.base.env == (("NCCL_DEBUG", "no"),)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (HEAD + "efort: {}\n", 3, "unknown key 'efort'; did you mean 'effort'"),
        (HEAD + "limits:\n  total_s: 3\n  stal_s: 3\n", 5, "unknown key 'limits.stal_s'; did you mean 'stall_s'"),
        (HEAD + "seed: 1\nseed: 2\n", 4, "duplicate key"),
        (HEAD + "limits: {stall_s: -1}\n", 3, "greater than 0"),
        (HEAD + "limits: 5\n", 3, "valid mapping"),
        (HEAD + "effort:\n  certify: true\n", 4, "valid integer"),
        (HEAD + "seed: 1e3\n", 3, "valid integer"),
        (HEAD + "fixed:\n  model.dim: 64\n  model.dmi: 3\n", 5, "did you mean 'model.dim'"),
        (HEAD + "fixed:\n  model.dim: wide\n", 4, "must be int"),
        (HEAD + "fixed: {model.tied_head: no}\n", 3, "must be bool"),
        (HEAD + "fixed: {n_layers: 3}\n", 3, "also the axis"),
        (HEAD + "fixed:\n  seq_len: 64\n  train.seq_len: 64\n", 5, "given twice"),
        (HEAD + "bad:\n  - hang\n  - hung\n", 5, "did you mean 'hang'"),
        (HEAD + "bad: [pass]\n", 3, "unknown kind of failure 'pass'"),
        (HEAD + "controls: [dens]\n", 3, "did you mean 'dense'"),
        (HEAD + "fault: crsh\n", 3, "did you mean 'crash'"),
        (HEAD + "executor: fork\n", 3, "'forkserver' or 'local'"),
        ("# why\nquestion: q\naxis: nlayers\n", 3, "did you mean 'n_layers'"),
        ("axis: n_layers\n", 1, "'question' is missing"),
        ("question: ''\naxis: n_layers\n", 1, "at least 1 character"),
        ("[1, 2]", 1, "is a mapping"),
        ("", 1, "is a mapping"),
        ("a: 1\nb: [", 2, "expected"),
        ("a: !!python/object x", 1, "constructor"),
        (HEAD + "---\nx: 1\n", 3, "another document"),
        ("question: \x07", 1, "not YAML"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(text, line, message):
    with pytest.raises(SpecError) as caught:
        parse(text, name="q.yaml")
    assert str(caught.value).startswith(f"q.yaml:{line}: ")
    assert message in str(caught.value)


def test_everything_that_is_wrong_is_said_at_once():
    with pytest.raises(SpecError) as caught:
        parse(HEAD + "sed: 1\nlimits: {stall_s: 0}\n", name="q.yaml")
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == ["q.yaml:4", "q.yaml:3"]


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"nowhere\.yaml: cannot be read"):
        load(tmp_path / "nowhere.yaml")


def test_a_file_that_is_not_text_is_named(tmp_path):
    (tmp_path / "q.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match=r"q\.yaml: cannot be read"):
        load(tmp_path / "q.yaml")


def test_the_schema_for_editors_knows_every_key_of_a_question():
    keys = QuestionKeys.model_json_schema()["properties"]
    asked = set(inspect.signature(threshold_question).parameters)
    assert set(keys) == asked - {"success", "reuse"}  # of the command line
