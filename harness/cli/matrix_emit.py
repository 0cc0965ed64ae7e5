"""nsa-harness matrix emit: a matrix file as the jobs of a continuous integration."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from harness.cli.exit_codes import ExitCode
from harness.cli.options import FILES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.core.matrix import Matrix
    from harness.core.point import Point

MOST_JOBS = 256
"""What GitHub takes for one matrix."""

SPARE_MINUTES = 10
WITHOUT_BUDGET_MINUTES = 360

EPILOG = """\b
Examples:
  nsa-harness matrix emit matrices/ddp_checkpoint.yaml
  nsa-harness matrix emit matrices/*.yaml --format gha >> "$GITHUB_OUTPUT"
  nsa-harness matrix emit two.yaml --format jobset --image IMAGE --claim work
\b
Jobs of a workflow (nsa-harness ci init writes a whole one):
  plan:
    runs-on: ubuntu-latest
    outputs: {matrix: "${{ steps.emit.outputs.matrix }}"}
    steps:
      - uses: actions/checkout@v4
      - run: pip install nsa-harness
      - id: emit
        run: >-
          nsa-harness matrix emit matrices/*.yaml
          --format gha >> "$GITHUB_OUTPUT"
  run:
    needs: plan
    strategy:
      matrix: ${{ fromJSON(needs.plan.outputs.matrix) }}
      fail-fast: false
    runs-on: ${{ matrix.runs_on }}
    timeout-minutes: ${{ matrix.timeout_minutes }}
    steps:
      - uses: actions/checkout@v4
      - run: pip install nsa-harness
      - run: nsa-harness ${{ matrix.args }}
\b
Exit codes:
  0    done
  2    wrong use: unknown option, or an error in a file
  5    no cell fits
"""

MOST_AWAITED = 5
"""Jobs that one Job of a JobSet may wait for (dependsOn of v1alpha2)."""

MOUNT = "/work"
"""Where a JobSet's pods see the volume that holds the matrix files and takes the runs."""


@click.command("emit", epilog=EPILOG, short_help="Print the CI jobs that run matrix files.")
@FILES
@click.option(
    "--format", "form", type=click.Choice(["json", "gha", "gitlab", "jobset"]), default="json", show_default=True
)
@click.option(
    "--max-jobs", type=click.IntRange(1, MOST_JOBS), default=32, show_default=True, help="As many jobs at most."
)
@click.option("--install", default="pip install nsa-harness", show_default=True, help="Of a GitLab job.")
@click.option("--image", default="python:3.12", show_default=True, help="Of a GitLab job, or of a JobSet's pods.")
@click.option("--claim", metavar="NAME", help=f"Volume of a JobSet's pods, at {MOUNT}: has FILES, and takes the runs.")
@click.option("--runs-on", multiple=True, metavar="GPUS=LABELS", help="Runner for so many GPUs, e.g. 2=gpu-x2.")
@click.pass_context
def emit(
    ctx: click.Context,
    *,
    files: tuple[Path, ...],
    form: str,
    max_jobs: int,
    install: str,
    image: str,
    claim: str | None,
    runs_on: tuple[str, ...],
) -> None:
    """Print the jobs that run FILES: one for each number of GPUs, split into shards up to --max-jobs.

    Not one job a cell: starting a machine costs more than most cells do.
    """
    labels = dict(_label(text, ctx) for text in runs_on)
    if form == "jobset" and claim is None:
        raise click.UsageError("--format jobset needs --claim: the PersistentVolumeClaim with the files", ctx)
    from harness.spec.matrix import load_matrix

    rows = jobs([(str(path), load_matrix(path).matrix) for path in files], max_jobs=max_jobs, labels=labels)
    if not rows:
        click.echo("no cell is planned in these files", err=True)
        ctx.exit(ExitCode.NOTHING)
    if form == "gitlab":
        click.echo(json.dumps(gitlab(rows, files=files, install=install, image=image), indent=1))
        return
    if form == "jobset":
        click.echo(json.dumps(jobset(rows, files=files, image=image, claim=claim or ""), indent=1))
        return
    matrix = {"include": [job.row for job in rows]}
    click.echo(f"matrix={json.dumps(matrix)}" if form == "gha" else json.dumps(matrix, indent=1))


def _label(text: str, ctx: click.Context) -> tuple[int, list[str]]:
    gpus, equals, labels = text.partition("=")
    if not equals or not gpus.strip().isdigit():
        raise click.UsageError(f"--runs-on {text!r} is not GPUS=LABELS; write for example 2=self-hosted,gpu-x2", ctx)
    return int(gpus), list(map(str.strip, labels.split(",")))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardJob:
    """One job: the part ``number`` of ``of`` of the cells of the matrix in ``file`` that need ``gpus`` GPUs."""

    file: str
    matrix: Matrix
    gpus: int
    number: int
    of: int
    cells: int
    runs_on: list[str]

    @property
    def group(self) -> str:
        """What it and the other parts of the same cells are called."""
        return f"{self.matrix.name}-gpus{self.gpus}"

    @property
    def name(self) -> str:
        """What it is called: ``m-gpus0``, or ``m-gpus0-1of2``."""
        return self.group + ("" if self.of == 1 else f"-{self.number}of{self.of}")

    @property
    def of_all(self) -> str:
        """The words of the command that would run all the parts."""
        return f"matrix run {shlex.quote(self.file)} --gpus {self.gpus}"

    @property
    def args(self) -> str:
        """The words of its command."""
        return f"{self.of_all} --shard {self.number}/{self.of}"

    @property
    def timeout_minutes(self) -> int:
        """The longest that it may take."""
        seconds = self.matrix.effort.max_seconds
        return WITHOUT_BUDGET_MINUTES if seconds is None else math.ceil(seconds / 60) + SPARE_MINUTES

    @property
    def row(self) -> dict[str, Any]:
        """It as JSON has it, and a workflow reads it."""
        return {
            "name": self.name,
            "runs_on": self.runs_on,
            "gpus": self.gpus,
            "cells": self.cells,
            "timeout_minutes": self.timeout_minutes,
            "args": self.args,
        }


def jobs(
    matrices: list[tuple[str, Matrix]], *, max_jobs: int, labels: dict[int, list[str]] | None = None
) -> list[ShardJob]:
    """The jobs for these matrices; each group of cells gets shards in proportion to its trials.

    Raises:
        SpecError: a full product too large to list, or more groups than jobs.
    """
    from harness.core.errors import SpecError
    from harness.spec.matrix_axes import shard_of

    groups: list[tuple[str, Matrix, int, list[Point]]] = []
    total = 0
    for path, matrix in _named_apart(matrices):
        for gpus, cells in by_gpus(matrix).items():
            groups.append((path, matrix, gpus, cells))
            total += len(cells) * matrix.passes
    if len(groups) > max_jobs:
        raise SpecError(f"{len(groups)} jobs are the least (one for each file and number of GPUs): raise --max-jobs")
    spare = max_jobs - len(groups)
    rows: list[ShardJob] = []
    for path, matrix, gpus, cells in groups:
        shards = min(1 + math.floor(spare * len(cells) * matrix.passes / total), len(cells))
        usual = ["self-hosted", f"gpus-{gpus}"] if gpus else ["ubuntu-latest"]
        runs_on = (labels or {}).get(gpus, usual)
        for number in range(1, shards + 1):
            row = ShardJob(
                file=path,
                matrix=matrix,
                gpus=gpus,
                number=number,
                of=shards,
                cells=len(shard_of(cells, number, shards)),
                runs_on=runs_on,
            )
            rows.append(row)
    return rows


def _named_apart(matrices: list[tuple[str, Matrix]]) -> list[tuple[str, Matrix]]:
    """The same, each by a name of its own, which its jobs and what they keep are called by: ``m``, ``m-v2``."""
    rows: dict[str, tuple[str, Matrix]] = {}
    for path, matrix in matrices:
        name, number = matrix.name, 1
        while name in rows:
            number += 1
            name = f"{matrix.name}-v{number}"
        rows[name] = path, replace(matrix, name=name)
    return list(rows.values())


def gitlab(rows: list[ShardJob], *, files: Iterable[Path], install: str, image: str) -> dict[str, Any]:
    """The same jobs as a child pipeline of GitLab's (JSON is YAML), with one that merges them at its end."""
    artifacts = {"when": "always", "paths": ["runs/", "nsa-harness.xml"], "reports": {"junit": "nsa-harness.xml"}}
    after = [
        "nsa-harness report --all --format junit --output nsa-harness.xml",
        "nsa-harness report --all --format short",
    ]
    common = {"image": image, "before_script": [install], "after_script": after, "artifacts": artifacts}
    pipeline: dict[str, Any] = {"stages": ["trials", "merge"]}
    for row in rows:
        runs = {"NSA_HARNESS_RUNS": f"runs/{row.name}"}
        tags = {} if row.runs_on == ["ubuntu-latest"] else {"tags": row.runs_on}
        own = {"variables": runs, "timeout": f"{row.timeout_minutes} minutes", **tags}
        pipeline[row.name] = {**common, "stage": "trials", **own, "script": [f"nsa-harness {row.args}"]}
    pipeline["merge"] = {
        **common,
        "stage": "merge",
        "when": "always",
        "variables": {"NSA_HARNESS_RUNS": "merged"},
        "script": [f"nsa-harness report merge runs {shlex.join(map(str, files))}"],
        "artifacts": {**artifacts, "paths": ["merged/", "nsa-harness.xml"]},
    }
    return pipeline


def jobset(rows: list[ShardJob], *, files: Iterable[Path], image: str, claim: str) -> dict[str, Any]:
    """The same jobs as a JobSet of Kubernetes (v1alpha2), and one that merges them: the set fails as that one does.

    The shards of one file and number of GPUs are the pods of one Indexed Job. A finding (exit code 1) fails no pod, so
    that the others run to their end; anything else does. Pods may trace their own processes, and share memory.

    Raises:
        SpecError: more than :data:`MOST_AWAITED` Jobs, which is what a JobSet lets one wait for.
    """
    from harness.core.errors import SpecError
    from harness.report.tried import grouped

    trials: list[dict[str, Any]] = []
    names: list[str] = []
    for first, *_ in grouped(rows, lambda row: row.of_all).values():
        run = f"nsa-harness {first.of_all} --shard $((JOB_COMPLETION_INDEX + 1))/{first.of} || [ $? -eq 1 ]"
        name = _dns(first.group, names=names)
        names.append(name)
        pod = _pod(run, image=image, claim=claim, gpus=first.gpus, runs=f"runs/{name}/$JOB_COMPLETION_INDEX")
        trials.append(_job(name, pod, pods=first.of, minutes=first.timeout_minutes))
    if len(trials) > MOST_AWAITED:
        raise SpecError(
            f"{len(trials)} pairs of a file and a number of GPUs, but a JobSet takes {MOST_AWAITED} at most"
        )
    command = f"nsa-harness report merge {MOUNT}/runs {shlex.join(map(str, files))}"
    merge = _pod(command, image=image, claim=claim, gpus=0, runs="merged")
    after = [{"name": name, "status": "Complete"} for name in names]
    jobs = [*trials, {**_job("merge", merge, pods=1, minutes=SPARE_MINUTES), "dependsOn": after}]
    name = _dns(f"nsa-{rows[0].matrix.name}", names=[])
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"failurePolicy": {"maxRestarts": 0}, "replicatedJobs": jobs},
    }


def _job(name: str, pod: dict[str, Any], *, pods: int, minutes: int) -> dict[str, Any]:
    job = {
        "backoffLimit": 0,
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "activeDeadlineSeconds": 60 * minutes,
        "template": {"spec": pod},
    }
    return {"name": name, "replicas": 1, "template": {"spec": job}}


def _pod(command: str, *, image: str, claim: str, gpus: int, runs: str) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "nsa-harness",
        "image": image,
        "workingDir": MOUNT,
        "command": ["sh", "-c", f"export NSA_HARNESS_RUNS={MOUNT}/{runs}; {command}"],
        "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}},
        "volumeMounts": [{"name": "work", "mountPath": MOUNT}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    volumes = [
        {"name": "work", "persistentVolumeClaim": {"claimName": claim}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    return {"restartPolicy": "Never", "containers": [container], "volumes": volumes}


def _dns(name: str, *, names: list[str]) -> str:
    """``name`` as Kubernetes takes it: small letters, digits and hyphens, short enough for a pod's name around it."""
    import re

    short = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:24].strip("-") or "matrix"
    number = 1
    for other in names:
        number += other == short or other.startswith(f"{short}-v")
    return short if number == 1 else f"{short}-v{number}"


def by_gpus(matrix: Matrix) -> dict[int, list[Point]]:
    """The planned cells, by the number of GPUs that they occupy."""
    from harness.report.tried import grouped
    from harness.search.cells import planned_cells

    return dict(sorted(grouped(planned_cells(matrix), matrix.gpus_at).items()))
