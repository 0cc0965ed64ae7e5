"""Cells and selections as a person types them, and the axes along which the program itself changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.core.errors import SpecError
from harness.core.point import AxisType
from harness.spec.inline import elsewhere_factor, inline_matrix, program_matrix
from harness.spec.matrix_axes import parse_cell, parse_selector

SPACE = inline_matrix(["n_layers=1..6", "tied_head=false,true", "precision=fp32,bf16"]).space


def test_a_cell_is_its_settings_and_the_good_values_of_the_rest():
    cell = parse_cell("n_layers=5,tied_head=1", SPACE)
    assert dict(cell) == {"n_layers": 5, "tied_head": True, "precision": "fp32"}
    assert parse_cell("good", SPACE) == parse_cell("", SPACE) == SPACE.good
    assert parse_cell("bad", SPACE) == SPACE.bad


def test_the_name_of_a_cell_is_a_cell():
    space = inline_matrix(["train.lr=0.0001,0.5,1.0,3000000.0", "tied_head=false,true"]).space
    cells = [
        space.cell({"train.lr": lr, "tied_head": tied})
        for lr in space.factor("train.lr").axis.values
        for tied in (False, True)
    ]
    assert [parse_cell(space.name_of(cell), space) for cell in cells] == cells
    assert [space.name_of(cell) for cell in cells[:2]] == ["baseline", "tied_head=true"]
    assert parse_cell("train.lr=1.0", space) == parse_cell("train.lr=1", space)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("n_layrs=5", "did you mean 'n_layers'"),
        ("n_layers=9", "it has 1, 2, 3"),
        ("precision=bf17", "did you mean 'bf16'"),
        ("n_layers", "is not axis=value"),
        ("n_layers>=5", "is not axis=value"),
    ],
)
def test_what_is_no_cell_is_said_with_the_nearest(text: str, wrong: str):
    with pytest.raises(SpecError, match=wrong):
        parse_cell(text, SPACE)


def test_a_selection_compares_and_lists():
    chosen = parse_selector(["n_layers>=5", "precision=fp32|bf16", "tied_head=true"], SPACE)
    assert chosen.holds({"n_layers": 5, "precision": "bf16", "tied_head": True})
    assert not chosen.holds({"n_layers": 4, "precision": "bf16", "tied_head": True})
    assert parse_selector([], SPACE).holds({})


def test_axes_on_the_command_line_know_their_kind_and_what_they_set():
    kinds = {factor.name: factor.axis.type for factor in SPACE.factors}
    assert kinds == {
        "n_layers": AxisType.ORDERED, "tied_head": AxisType.FLAG, "precision": AxisType.CATEGORICAL,
    }  # fmt: skip
    assert SPACE.factor("tied_head").bundles[1].config == (("model.tied_head", True),)
    with pytest.raises(SpecError, match="needs its values"):
        inline_matrix(["tied_head"])
    with pytest.raises(SpecError, match="nothing to vary"):
        inline_matrix([])


def git(folder: Path, *argv: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    return subprocess.run(["git", "-C", str(folder), *who, *argv], capture_output=True, text=True, check=True).stdout


def three_commits(folder: Path) -> list[str]:
    git(folder, "init", "--quiet")
    for number in range(3):
        git(folder, "commit", "--quiet", "--allow-empty", "-m", str(number))
        git(folder, "tag", f"v{number}")
    return git(folder, "log", "--reverse", "--format=%H").split()


@pytest.mark.parametrize(
    ("range_", "message"),
    [
        ("v2..v0", r"v2\.\.v0 is turned round: v0 comes before v2 in their history; .*: commit=v0\.\.v2"),
        ("v2..v2", r"v2\.\.v2 has no second commit: v2 and v2 are the same one, [0-9a-f]{12}$"),
        ("v2..", r"v2\.\.HEAD has no second commit: v2 and HEAD are the same one"),
    ],
)
def test_a_range_without_a_commit_after_its_first_is_refused_with_the_reason(tmp_path: Path, range_: str, message: str):
    three_commits(tmp_path)
    with pytest.raises(SpecError, match=message):
        elsewhere_factor(f"commit={range_}", repository=tmp_path)


@pytest.mark.parametrize("command", [("python", "x.py"), ("{{python}}", "x.py")])
def test_interpreters_without_a_place_in_the_command_are_refused_like_any_other_axis(command, tmp_path: Path):
    def matrix(*words: str):
        return program_matrix(
            words, axes=["env:py=/a/python,/b/python"], settings={}, env=(), environ={}, repository=tmp_path
        )

    with pytest.raises(SpecError, match=r"axis 'py' has no place in the command; write \{python\}"):
        matrix(*command)
    for place in (("{python}", "x.py"), ("sh", "-c", "{python} x.py")):
        assert [bundle.python for bundle in matrix(*place).space.factors[0].bundles] == ["/a/python", "/b/python"]


def test_an_axis_of_secrets_is_refused_on_the_command_line_too(tmp_path: Path):
    def of(first: str, last: str):
        command = ["python", "train.py", "{token}"]
        axes = [f"token={first},{last}"]
        return program_matrix(command, axes=axes, settings={}, env=(), environ={}, repository=tmp_path)

    assert of("first", "second").space.factor("token").axis.values == ("first", "second")
    with pytest.raises(SpecError, match="axis 'token' lists secrets, which are written down nowhere"):
        of("hf_" + "a" * 24, "hf_" + "b" * 24)


def test_commits_are_in_their_order_and_interpreters_in_that_given(tmp_path: Path):
    commits = three_commits(tmp_path)
    factor = elsewhere_factor(f"commit={commits[0]}..HEAD", repository=tmp_path)
    assert factor.axis.values == tuple(commit[:12] for commit in commits)
    assert [bundle.commit for bundle in factor.bundles] == list(factor.axis.values)
    with pytest.raises(SpecError, match="git rev-parse"):
        elsewhere_factor("commit=nothing..HEAD", repository=tmp_path)

    torch = elsewhere_factor("env:torch=/b/bin/python,/a/bin/python", repository=tmp_path)
    assert (torch.name, torch.good, torch.bad) == ("torch", "/b/bin/python", "/a/bin/python")
    assert elsewhere_factor("n_layers=1..4", repository=tmp_path) is None
    with pytest.raises(SpecError, match="at least two"):
        elsewhere_factor("commit=HEAD", repository=tmp_path)
