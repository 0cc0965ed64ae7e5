"""A matrix file as jobs: every planned cell in exactly one of them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from harness.cli.main import main
from harness.cli.matrix import matrix
from harness.cli.matrix_emit import EPILOG, jobs
from harness.cli.questions import question_of_cells as question_of
from harness.core.errors import SpecError
from harness.settings import Settings
from harness.spec.matrix import load_matrix
from harness.spec.questions import search_spec

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
    "executor": None, "seed": 0, "gpus": None, "shard": None, "reuse": None, "axes": (), "fault": None,
    "strategy": None,
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.yaml"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("most", [2, 3, 5, 9])
def test_every_cell_is_in_exactly_one_job(file: Path, most: int):
    rows = [job.row for job in jobs([(str(file), load_matrix(file).matrix)], max_jobs=most)]
    assert len(rows) <= most
    ran = []
    for row in rows:
        words = row["args"].split()
        options = OPTIONS | {"gpus": int(words[words.index("--gpus") + 1]), "shard": words[words.index("--shard") + 1]}
        spec = question_of(Settings.read(environ={}), str(file), options)
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


@pytest.mark.parametrize("form", ["json", "gitlab"])
def test_two_files_of_the_same_name_have_jobs_of_their_own(file: Path, form: str):
    for name in ("copy.yaml", "third.yaml"):
        (file.parent / name).write_text(TEXT)
    files = [str(file.parent / name) for name in ("m.yaml", "copy.yaml", "third.yaml")]
    done = CliRunner().invoke(matrix, ["emit", *files, "--format", form, "--max-jobs", "6"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.output)
    names = [row["name"] for row in printed["include"]] if form == "json" else list(printed)
    assert {f"{name}-gpus{gpus}" for name in ("m", "m-v2", "m-v3") for gpus in (0, 2)} <= set(names)
    assert len(names) == len(set(names))


def test_a_jobset_is_called_as_its_matrix_whatever_that_is_called(file: Path):
    file.write_text(TEXT.replace("name: m\n", "name: two-gpus-1of2\n"))
    done = CliRunner().invoke(matrix, ["emit", str(file), "--format", "jobset", "--claim", "work", "--max-jobs", "3"])
    assert done.exit_code == 0, done.output
    jobset = json.loads(done.stdout)
    assert jobset["metadata"]["name"] == "nsa-two-gpus-1of2"
    assert [job["name"] for job in jobset["spec"]["replicatedJobs"]] == [
        "two-gpus-1of2-gpus0",
        "two-gpus-1of2-gpus2",
        "merge",
    ]


def test_fewer_jobs_than_groups_is_refused(file: Path):
    with pytest.raises(SpecError, match="raise --max-jobs"):
        jobs([(str(file), load_matrix(file).matrix)], max_jobs=1)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "x", "1"])
def test_a_shard_that_is_none_is_refused(file: Path, shard: str):
    done = CliRunner().invoke(main, ["matrix", "run", str(file), "--shard", shard])
    assert done.exit_code == 2
    assert "K/N" in done.output


@pytest.mark.parametrize("verb", ["lint", "emit", "show"])
def test_a_question_about_one_axis_is_a_matrix_without_planned_cells(verb):
    matrices = Path(__file__).parents[4] / "matrices"
    done = CliRunner().invoke(matrix, [verb, str(matrices / "layers.yaml"), str(matrices / "safe_mode.yaml")])

    assert done.exit_code == 0, done.output
    assert ("layers.yaml" in done.stdout) is False
    said = {"lint": "", "emit": "safe_mode.yaml", "show": "search n_layers (bisect): about "}[verb]
    assert said in done.stdout


def test_its_search_is_asked_as_the_file_says():
    path = Path(__file__).parents[4] / "matrices" / "layers.yaml"
    spec = search_spec(load_matrix(path).matrix, "n_layers", file=str(path))

    assert (spec.axis, spec.signature, spec.matrix.space.bad.get("n_layers")) == ("n_layers", "hang", 12)
    assert dict(spec.matrix.base.config) == {"model.attention": "nsa"}


def test_a_file_whose_name_a_shell_would_run_is_quoted(tmp_path):
    hostile = tmp_path / "a $(id) b.yaml"
    hostile.write_text(TEXT)
    done = CliRunner().invoke(matrix, ["emit", str(hostile)])
    args = [job["args"] for job in json.loads(done.stdout)["include"]]
    assert args
    assert all(shlex.split(text)[2] == str(hostile) for text in args)


def test_the_workflow_in_its_help_is_whole():
    text = EPILOG.split("a whole one):\n")[1].split("\b\n")[0]
    jobs = yaml.safe_load(text)
    needed = {name: set(re.findall(r"needs\.(\w+)", str(job))) for name, job in jobs.items()}
    assert {name for name, job in jobs.items() if "runs-on" in job} == set(jobs)
    assert needed == {name: {job["needs"]} if "needs" in job else set() for name, job in jobs.items()}
    asked = {step["id"] for step in jobs["plan"]["steps"] if "id" in step}
    assert set(re.findall(r"steps\.(\w+)", str(jobs["plan"]["outputs"]))) == asked
