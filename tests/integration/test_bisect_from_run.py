"""``bisect --from-run RUN --cell CELL``: after a red cell, along which axis and from which value on it fails."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner, Result

from harness.cli.main import main

pytestmark = pytest.mark.usefixtures("_without_figures")

MATRIX = """\
version: 1
name: two
target: command
command: ["{python}", train.py]
axes:
  n: {{type: ordered, values: [1, 2, 3, 4], apply: {{env: N}}}}
  mode: {{type: categorical, values: [plain, shared, mixed], apply: {{env: MODE}}}}
strategy: list
include:
  - {{n: 4, mode: shared}}
repeat: {{passes: 1, certify: {{passes: 2}}}}
"""
TRAIN = """\
import os
print("step 1", flush=True)
if int(os.environ["N"]) >= 3 and os.environ["MODE"] != "plain":
    raise ValueError("planted")
"""


def nsa_harness(*argv: str) -> Result:
    return CliRunner().invoke(main, argv, prog_name="nsa-harness")


@pytest.fixture
def red(tmp_path, monkeypatch):
    """A run of a matrix with one cell, which is red; its file is gone."""
    file = tmp_path / "two.yaml"
    file.write_text(MATRIX.format(python=sys.executable))
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    done = nsa_harness("matrix", "run", "two.yaml")
    assert done.exit_code == 1, done.output
    file.unlink()


def test_a_red_cell_is_followed_along_an_axis_with_everything_else_as_it_was_there(red):
    done = nsa_harness("bisect", "--from-run", "latest", "--cell", "n=4,mode=shared", "--axis", "n", "--json")

    assert done.exit_code == 0, done.output
    boundary = json.loads(done.stdout)["run"]["answer"]["boundary"]
    assert (boundary["first_bad"], boundary["last_good"], boundary["certified"]) == (3, 2, True)


def test_words_are_followed_in_the_order_in_which_they_stand_in_the_file(red):
    done = nsa_harness("bisect", "--from-run", "latest", "--cell", "n=4,mode=shared", "--axis", "mode", "--json")

    assert done.exit_code == 0, done.output
    boundary = json.loads(done.stdout)["run"]["answer"]["boundary"]
    assert (boundary["first_bad"], boundary["last_good"]) == ("shared", "plain")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--from-run", "latest"), "--from-run needs --cell"),
        (("--cell", "n=4"), "--cell needs --from-run"),
        (("--from-run", "latest", "--cell", "n=4,mode=shared"), "in 2 axes; give one of mode, n"),
        (("--from-run", "latest", "--cell", "n=4", "--axis", "mode"), "mode is at its good value there"),
        (("--from-run", "latest", "--cell", "good"), "give another cell: this is the good one"),
        (("--from-run", "latest", "--cell", "n=4", "--", "true"), "two questions"),
        (("--from-run", "nowhere", "--cell", "n=4"), "nowhere"),
    ],
)
def test_a_question_that_cannot_be_asked_of_a_run_says_what_would(red, argv, said):
    done = nsa_harness("bisect", *argv)

    assert done.exit_code in (2, 6)
    assert said in " ".join(done.stderr.split())
