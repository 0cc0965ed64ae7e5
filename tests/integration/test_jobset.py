"""A matrix as a JobSet of Kubernetes: valid by its schema, and its pods' commands run every cell once and merge them.

The schema is that of JobSet v1alpha2, with the pod's and the Job's inside (kubernetes-sigs/jobset at 08dfbdf,
Apache-2.0, without descriptions; unknown fields are refused, as a server that validates strictly does).
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from harness.cli.matrix import matrix

SCHEMA = Path(__file__).parents[1] / "data" / "kubernetes" / "jobset-v1alpha2.schema.json.gz"
TEXT = """
version: 1
name: Two_sizes
target: command
command: [python, -c, "print('step 1')"]
axes:
  n: {type: ordered, values: [1, 2], apply: {env: N}}
  g: {type: categorical, values: [few, many], apply: {env: G}}
strategy: full
resources_when: [{when: {g: many}, gpus: 2}]
"""


@pytest.fixture
def emitted(tmp_path, monkeypatch):
    """What is printed for a file with cells of two numbers of GPUs, in at most three jobs."""
    monkeypatch.chdir(tmp_path)
    Path("two.yaml").write_text(TEXT)
    asked = ["emit", "two.yaml", "--format", "jobset", "--image", "trainer:1", "--claim", "work", "--max-jobs", "3"]
    done = CliRunner().invoke(matrix, asked)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def errors(jobset):
    schema = json.loads(gzip.decompress(SCHEMA.read_bytes()))
    return [f"{list(error.path)}: {error.message}" for error in Draft202012Validator(schema).iter_errors(jobset)]


def pods(jobset):
    return {job["name"]: job["template"]["spec"] for job in jobset["spec"]["replicatedJobs"]}


def test_it_is_valid_and_a_wrong_field_would_be_seen(emitted):
    assert errors(emitted) == []

    emitted["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["imag"] = "x"
    emitted["spec"]["replicatedJobs"][0]["dependOn"] = []
    assert len(errors(emitted)) == 2


def test_gpus_are_asked_for_where_cells_need_them_and_the_merge_waits_for_all(emitted):
    *trials, merge = emitted["spec"]["replicatedJobs"]
    limits = {
        name: job["template"]["spec"]["containers"][0].get("resources", {}).get("limits", {})
        for name, job in pods(emitted).items()
    }
    assert limits == {"two-sizes-gpus0": {}, "two-sizes-gpus2": {"nvidia.com/gpu": "2"}, "merge": {}}
    assert merge["dependsOn"] == [{"name": job["name"], "status": "Complete"} for job in trials]


@pytest.mark.long
def test_its_pods_run_every_cell_once_and_the_last_one_merges_them(emitted, tmp_path):
    (tmp_path / "bin").mkdir()
    ours = tmp_path / "bin" / "nsa-harness"
    ours.write_text(f'#!/bin/sh\nexec {sys.executable} -m harness "$@"\n')
    ours.chmod(0o755)
    path = f"{ours.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    for name, job in pods(emitted).items():
        for index in range(job["completions"]):
            words = [
                word.replace("/work", str(tmp_path)) for word in job["template"]["spec"]["containers"][0]["command"]
            ]
            if "--gpus 2" in words[-1]:
                words[-1] = words[-1].replace("matrix run", "matrix run --dry-run")  # there are none here
            env = {**os.environ, "PATH": path, "JOB_COMPLETION_INDEX": str(index)}
            done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
            ended = 6 if name == "merge" else 0  # the cells with two GPUs left no run
            assert done.returncode == ended, (name, done.stdout, done.stderr)
    (merged,) = (tmp_path / "merged").glob("*/journal.jsonl")
    ran = [event for line in merged.read_text().splitlines() if (event := json.loads(line))["event"] == "record"]
    settings = [event["data"]["record"]["trial"]["point"]["settings"] for event in ran]
    assert sorted(settings) == [[["g", "few"], ["n", 1]], [["g", "few"], ["n", 2]]]


def test_without_a_claim_it_is_said_what_that_is(tmp_path):
    (tmp_path / "two.yaml").write_text(TEXT)
    done = CliRunner().invoke(matrix, ["emit", str(tmp_path / "two.yaml"), "--format", "jobset"])
    assert done.exit_code == 2
    assert "PersistentVolumeClaim" in done.output
