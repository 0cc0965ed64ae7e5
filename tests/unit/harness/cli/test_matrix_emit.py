"""A matrix file as jobs: every planned cell in exactly one of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.matrix import matrix
from harness.cli.matrix_emit import jobs
from harness.cli.matrix_run import question_of
from harness.core.errors import SpecError
from harness.spec.matrix import load_matrix

TEXT = """
version: 1
name: m
axes:
  n_layers: {type: ordered, range: [1, 12]}
  parallel: {type: categorical, values: [single, ddp], apply: {config: parallel.mode}}
strategy: full
resources_when: [{when: {parallel: ddp}, gpus: 2}]
budget: {wall: 30m}
"""
OPTIONS = {
    "only": (), "cells": (), "tags": (), "repeat": None, "fail_fast": False, "budget": None, "max_trials": None,
    "executor": None, "seed": 0, "gpus": None, "shard": None, "reuse": None,
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.yaml"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("most", [2, 3, 5, 9])
def test_every_cell_is_in_exactly_one_job(file: Path, most: int):
    rows = jobs([(str(file), load_matrix(file).matrix)], max_jobs=most)
    assert len(rows) <= most
    ran = []
    for row in rows:
        words = row["args"].split()
        options = OPTIONS | {"gpus": int(words[words.index("--gpus") + 1]), "shard": words[words.index("--shard") + 1]}
        spec = question_of(str(file), options)
        assert len(spec.cells) == row["cells"]
        assert row["timeout_minutes"] == 40
        ran += spec.cells
    assert len(ran) == len(set(ran)) == 24


def test_for_github_it_is_one_line_that_parses(file: Path):
    done = CliRunner().invoke(matrix, ["emit", str(file), "--format", "gha", "--runs-on", "2=self-hosted,h200"])
    assert done.exit_code == 0, done.output
    name, _, text = done.output.strip().partition("=")
    assert name == "matrix"
    assert next(row["runs_on"] for row in json.loads(text)["include"] if row["gpus"] == 2) == ["self-hosted", "h200"]


def test_fewer_jobs_than_groups_is_refused(file: Path):
    with pytest.raises(SpecError, match="raise --max-jobs"):
        jobs([(str(file), load_matrix(file).matrix)], max_jobs=1)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "x", "1"])
def test_a_shard_that_is_none_is_refused(file: Path, shard: str):
    done = CliRunner().invoke(matrix, ["run", str(file), "--shard", shard])
    assert done.exit_code == 2
    assert "K/N" in done.output


@pytest.mark.parametrize("verb", ["lint", "emit", "show"])
def test_a_question_among_matrices_is_left_aside_and_named(verb):
    matrices = Path(__file__).parents[4] / "matrices"
    done = CliRunner().invoke(matrix, [verb, str(matrices / "layers.yaml"), str(matrices / "safe_mode.yaml")])

    assert done.exit_code == 0, done.output
    assert f"left aside: {matrices / 'layers.yaml'} asks about one axis" in done.stderr
    assert "left aside" not in done.stdout
