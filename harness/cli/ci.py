"""nsa-harness ci: matrix files as a workflow of GitHub's, and what a run found as its annotations."""

from __future__ import annotations

import re
import shlex
from importlib.resources import files as packaged
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import click

from harness.cli import complete
from harness.cli.exit_codes import ExitCode
from harness.cli.options import FILES, RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKFLOW = Path(".github/workflows/nsa-harness.yml")
ACTION = Path(".github/actions/nsa-harness/action.yml")
GITLAB = Path(".gitlab/nsa-harness.yml")

MOST_ANNOTATIONS = 10
"""What GitHub shows of one step."""

EPILOG = """\b
Examples:
  nsa-harness ci init matrices/*.yaml
  nsa-harness ci annotate
\b
Exit codes:
  0    done
  2    wrong use; each command has more
"""
INIT = """\b
Examples:
  nsa-harness ci init matrices/*.yaml
  nsa-harness ci init nightly.yaml --install 'pip install nsa-harness ./mine'
  nsa-harness ci init matrices/*.yaml --for gitlab
\b
Exit codes:
  0    written
  2    wrong use, an error in a file, or a file there that is not ours
  6    this folder cannot be written to
"""
ANNOTATE = """\b
Examples:
  nsa-harness ci annotate            of the last run
  nsa-harness ci annotate --all      of every run
\b
Exit codes:
  0    printed, if there was anything to say
  6    the run cannot be read
"""


@click.group(epilog=EPILOG)
def ci() -> None:
    """Run matrix files in a continuous integration."""


@ci.command(epilog=INIT, short_help="Write a workflow for GitHub or GitLab that runs matrix files.")
@FILES
@click.option("--install", default="pip install nsa-harness", show_default=True, help="What installs all it needs.")
@click.option("--python", default="3.12", show_default=True, metavar="VERSION", help="The Python of the jobs.")
@click.option("--max-jobs", type=click.IntRange(1, 256), default=4, show_default=True, help="Jobs at most.")
@click.option("--for", "service", type=click.Choice(["github", "gitlab"]), default="github", show_default=True)
@click.option("--force", is_flag=True, help="Write over files that are there.")
def init(files: tuple[Path, ...], *, install: str, python: str, max_jobs: int, service: str, force: bool) -> None:
    """Write a workflow that plans the cells of FILES, runs them in jobs, and shows what was found as one report.

    For GitHub a second file is the action that its jobs share; other workflows can use it too. For GitLab it is one
    file to include in .gitlab-ci.yml. Run it where .github or .gitlab-ci.yml belongs.
    """
    from harness.core.errors import SpecError
    from harness.spec.matrix import load_matrix
    from harness.store.files import outside_of_runs, write_atomic

    for path in files:  # what is wrong in a file is better said now
        load_matrix(path)
    if "\n" in install or re.search(r"(^[-?:,\[\]{}#&*!|>'\"%@`])|: | #", install):
        raise SpecError(f"--install {install!r} is no plain text in YAML; put it into a script, e.g. bash install.sh")
    paths = shlex.join(map(str, files))
    is_gitlab = service == "gitlab"
    workflow = _packaged("gitlab.yml" if is_gitlab else "workflow.yml").format(
        command=f"nsa-harness ci init {paths}" + (" --for gitlab" if is_gitlab else ""),
        python=python,
        install=install,
        quoted=shlex.quote(install),
        files=paths,
        max_jobs=max_jobs,
    )
    texts = {GITLAB if is_gitlab else WORKFLOW: workflow}
    if service == "github":
        texts[ACTION] = _packaged("action.yml")
    for path, text in texts.items():
        if not force and path.exists() and path.read_text(encoding="utf-8") != text:
            raise SpecError(f"{path} is there and is not what would be written; look at it, then use --force")
    for path, text in texts.items():
        with outside_of_runs(path):
            write_atomic(path, text)
        click.echo(str(path))


@ci.command(epilog=ANNOTATE, short_help="Print a run's failures as annotations of a GitHub step.")
@click.argument("run", required=False, metavar="[RUN]", shell_complete=complete.runs)
@RUNS
@click.option("--all", "is_of_all", is_flag=True, help="Of every run.")
@click.pass_context
def annotate(ctx: click.Context, *, run: str | None, runs: str | None, is_of_all: bool) -> None:
    """Print each failed cell, value or program of RUN (the last one by default) as an annotation."""
    from harness.cli.report import of_all
    from harness.report.write import form
    from harness.settings import Settings
    from harness.store.run_store import find_run, read_run

    where = Settings.read(runs=runs).runs
    if is_of_all:
        if run:
            raise click.UsageError("--all takes no RUN")
        text = of_all(where, "junit")
    else:
        directory = find_run(where, run)
        text = form(read_run(directory), directory, "junit")
    lines = list(annotations_of(text))
    for line in lines[:MOST_ANNOTATIONS]:
        click.echo(line)
    if len(lines) > MOST_ANNOTATIONS:
        click.echo(f"{len(lines) - MOST_ANNOTATIONS} more are in the report", err=True)
    ctx.exit(ExitCode.OK)


def annotations_of(junit: str) -> Iterator[str]:
    """A workflow command for each test case that failed (error) or could not be told (warning)."""
    for case in ET.fromstring(junit).iter("testcase"):
        for tag, level in (("failure", "error"), ("error", "warning")):
            for failure in case.iter(tag):
                title = f"{case.get('name')}: {failure.get('message')}"
                name = _data(title).replace(":", "%3A").replace(",", "%2C")
                yield f"::{level} title={name}::{_data(failure.text or title)}"


def _data(text: str) -> str:
    """``text`` as GitHub wants it in a workflow command."""
    return text.strip().replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _packaged(name: str) -> str:
    return (packaged("harness.cli") / "ci_files" / name).read_text(encoding="utf-8")
