"""``report merge``: the shards of a matrix as one run, whose report is that of a run which nobody cut."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from harness.cli.main import main
from harness.clock import WallClock
from harness.store import layout
from harness.store.files import link_files
from harness.store.history import History
from harness.store.run_store import RunStore

pytestmark = pytest.mark.usefixtures("_without_figures")

MATRIX = """\
version: 1
name: three
target: command
command: ["{python}", train.py]
axes:
  n: {{type: ordered, values: [1, 2, 3], apply: {{env: N}}}}
strategy: full
repeat: {{passes: 2}}
"""
TRAIN = "import os\nprint('step 1', flush=True)\nif os.environ['N'] == '3':\n    raise ValueError('planted')\n"


def nsa_harness(*argv: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in argv], prog_name="nsa-harness")


def prepared(folder: Path) -> Path:
    (folder / "three.yaml").write_text(MATRIX.format(python=sys.executable))
    (folder / "train.py").write_text(TRAIN)
    return folder


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return prepared(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with the run that nobody cut (``whole``) and both halves of it (``1``, ``2``), each run once for all."""
    folder = prepared(tmp_path_factory.mktemp("made"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("harness.report.apart.figures_of", lambda findings, hide: ())
        ran(folder / "whole")
        for shard in (1, 2):
            ran(folder / str(shard), "--shard", f"{shard}/2")
    return folder


@pytest.fixture
def whole(project, made) -> History:
    return History.read(next(shutil.copytree(made / "whole", project / "whole").iterdir()))


def halves(made: Path, shards: Path, *numbers: int) -> Path:
    """Copies of halves in a folder each."""
    for number in numbers:
        shutil.copytree(made / str(number), shards / str(number))
    return shards


def ran(runs: Path, *options: object) -> History:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NSA_HARNESS_RUNS", str(runs))
        done = nsa_harness("matrix", "run", "three.yaml", *options)
    assert done.exit_code in (0, 1), done.output
    return History.read(next(runs.iterdir()))


def cut(whole: History, runs: Path, *, shard: int, of: int) -> None:
    """The part of ``whole`` that a shard would have had: the very same trials, so that no time differs."""
    spec = whole.question
    cells = spec.cells[shard - 1 :: of]
    with RunStore.create(
        runs,
        spec=replace(spec, cells=cells),
        machine=whole.identity.machine,
        code=whole.identity.code,
        invocation=whole.identity.invocation.having("--shard", f"{shard}/{of}"),
        clock=WallClock(),
    ) as store:
        for record in whole.records():
            if record.trial.point in cells:
                key = record.trial.key
                link_files(layout.trial(whole.run_dir, key), layout.trial(store.run_dir, key))
                store.add_record(record, proof=whole.proofs[key])
        store.add_end(why="answered", seconds=whole.run().seconds / of)


def said(run_dir: Path, form: str) -> str:
    """A form of the report without the run's own name, its begin, and the times of its controller."""
    done = nsa_harness("report", run_dir, "--format", form)
    assert done.exit_code == 0, done.output
    text = done.output.replace(str(run_dir.parent), "RUNS").replace(run_dir.name, "RUN")
    text = re.sub(r"(RUNS|\b(whole|merged))/RUN", "RUN", text)
    return re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|Z)?", "THEN", text)


def test_the_merged_report_is_that_of_the_run_that_was_not_cut(project, whole):
    for shard in (1, 2):
        cut(whole, project / "artefacts" / str(shard) / "runs", shard=shard, of=2)

    merged = nsa_harness("report", "merge", "artefacts", "--runs", project / "merged")

    assert merged.exit_code == 1, merged.output  # as the run itself: n=3 crashes
    run_dir = next((project / "merged").iterdir())
    for form in ("md", "junit", "github", "short", "terminal"):
        assert said(run_dir, form) == said(whole.run_dir, form)
        assert len(said(run_dir, form)) > 80


def test_shards_that_really_ran_give_every_cell_and_read_like_one_run(project, made):
    halves(made, project / "shards", 1, 2)

    merged = nsa_harness("report", "merge", "shards", "--runs", project / "merged")

    assert merged.exit_code == 1
    assert "3 cells: 2 PASS, 1 CRASH (ValueError)" in merged.output
    run_dir = next((project / "merged").iterdir())
    assert [dict(cell)["n"] for cell in History.read(run_dir).question.cells] == [1, 2, 3]
    assert nsa_harness("fsck", run_dir).exit_code == 0
    assert "--shard" not in json.loads((run_dir / "machine.json").read_text())["argv"]


def test_a_shard_that_is_missing_is_missed_and_one_named_twice_counts_once(project, whole):
    cut(whole, project / "shards", shard=1, of=2)
    (project / "again").mkdir()
    (project / "again" / "copy").symlink_to(next((project / "shards").iterdir()))

    alone = nsa_harness("report", "merge", "shards", "--runs", project / "alone")
    twice = nsa_harness("report", "merge", "shards", project / "again" / "copy", "--runs", project / "merged")
    nothing = nsa_harness("report", "merge", project / "train.py")
    unnamed = nsa_harness("report", "merge")

    assert alone.exit_code == 6
    assert "shard 2/2 is missing" in alone.stderr
    assert twice.exit_code == 6
    assert "shard 2/2 is missing" in twice.stderr
    assert nothing.exit_code == 6
    assert unnamed.exit_code == 2
    assert len(list((project / "merged").iterdir())) == 1


def test_of_a_shard_that_was_run_twice_the_later_run_counts_and_the_page_says_so(project, made):
    (project / "train.py").write_text(TRAIN.replace("'3'", "'2'"))
    first = ran(project / "shards" / "first", "--shard", "2/2").run_dir
    (project / "train.py").write_text(TRAIN)
    ran(project / "shards" / "again", "--shard", "2/2")
    halves(made, project / "shards", 1)

    done = nsa_harness("report", "merge", "shards", "--runs", "merged")

    assert done.exit_code == 1, done.output
    assert "3 cells: 2 PASS, 1 CRASH (ValueError)" in done.output
    assert f"not shards/first/{first.name} (2 CRASH (ValueError))" in " ".join(done.output.split())


def test_a_shard_with_another_budget_is_merged_with_the_others(project, made):
    ran(project / "shards" / "1", "--shard", "1/2", "--max-trials", 9)
    halves(made, project / "shards", 2)

    done = nsa_harness("report", "merge", "shards", "--runs", "merged")

    assert "3 cells: 2 PASS, 1 CRASH (ValueError)" in done.output
    assert "missing" not in done.output


@pytest.fixture
def without_the_failing_half(project) -> tuple[Path, Result]:
    """The merge of a matrix cut as ``matrix emit`` cuts it, of whose two shards the one with the crash left no run."""
    (project / "three.yaml").write_text((project / "three.yaml").read_text().replace("[1, 2, 3]", "[1, 3]"))
    ran(project / "shards", "--gpus", 0, "--shard", "1/2")
    done = nsa_harness("report", "merge", "shards", "--runs", "merged")
    return next((project / "merged").iterdir()), done


def test_every_form_says_which_shard_left_no_run_and_none_that_all_passed(without_the_failing_half):
    run_dir, done = without_the_failing_half
    assert done.exit_code == 6
    for form in ("terminal", "short", "github", "md", "html", "junit", "json"):
        text = " ".join(nsa_harness("report", run_dir, "--format", form).output.split())
        assert "1 cell of shard 2/2 was not run" in text, form
        assert not re.search(r"PASS: nothing failed|all \d+ passed|every trial passed|✅", text, re.IGNORECASE), form
        if form != "html":
            assert "matrix run three.yaml --gpus 0 --shard 2/2" in text.replace('", "', " "), form


def test_a_missing_shard_is_an_error_of_the_suite_and_an_annotation(without_the_failing_half):
    run_dir, _ = without_the_failing_half

    suite = ET.fromstring(nsa_harness("report", run_dir, "--format", "junit").output)[0]
    errors = {case.get("name"): case.find("error").get("message") for case in suite if case.find("error") is not None}

    assert list(errors) == ["shard 2/2"]
    assert (suite.get("tests"), suite.get("errors"), suite.get("skipped")) == ("3", "1", "1")
    annotation = nsa_harness("ci", "annotate", run_dir).output
    assert annotation.startswith("::warning title=shard 2/2")
    assert annotation.count("\n") == 1


def test_a_failure_beside_a_missing_shard_does_not_hide_it(project, made):
    halves(made, project / "shards", 1)  # n=1 and n=3, which crashes

    done = nsa_harness("report", "merge", "shards", "--runs", "merged")

    assert done.exit_code == 6
    page = " ".join(done.stdout.split())
    assert page.startswith("CRASH (ValueError) in one cell of 2, n=3; 1 cell of shard 2/2 was not run.")


def test_the_command_that_is_named_runs_the_missing_shard_and_the_next_merge_is_whole(without_the_failing_half):
    run_dir, done = without_the_failing_half
    command = History.read(run_dir).question.lost[0].invocation.argv
    assert shlex.join(command) in done.stdout

    nsa_harness(*command[1:], "--runs", "shards")
    whole = nsa_harness("report", "merge", "shards", "--runs", "whole")

    assert whole.exit_code == 1
    assert "2 cells: 1 PASS, 1 CRASH (ValueError)" in whole.output
    assert "not run" not in whole.output
    again = nsa_harness("report", "merge", run_dir, *sorted(Path("shards").iterdir())[1:], "--runs", "again")
    assert "2 cells: 1 PASS, 1 CRASH (ValueError)" in again.output, "a merge takes up what it had lost"
    assert "not run" not in again.output


def test_a_missing_shard_is_missed_no_more_once_its_cells_were_run(without_the_failing_half):
    run_dir, _ = without_the_failing_half

    resumed = nsa_harness("matrix", "run", "--resume", run_dir)

    assert "2 cells: 1 PASS, 1 CRASH (ValueError)" in resumed.output
    assert "was not run" not in (run_dir / "report.md").read_text()


def test_every_job_of_another_number_of_gpus_is_missed_too(project):
    text = (project / "three.yaml").read_text()
    (project / "three.yaml").write_text(text + "resources_when: [{when: {n: 3}, gpus: 2}]\n")
    ran(project / "shards", "--gpus", 0, "--shard", "1/1")

    done = nsa_harness("report", "merge", "shards", "--runs", "merged")

    assert done.exit_code == 6
    assert "1 cell of every shard (--gpus 2) was not run" in " ".join(done.stdout.split())
    assert "matrix run three.yaml --gpus 2" in done.stdout


def test_a_matrix_of_which_no_job_left_a_run_has_a_report_that_says_so_in_every_form(project):
    """Its jobs never began: the merge of the others' runs passed, and nothing spoke of it."""
    other = (project / "three.yaml").read_text().replace("name: three", "name: other").replace("[1, 2, 3]", "[1, 2]")
    (project / "other.yaml").write_text(other)
    (project / "three.yaml").write_text((project / "three.yaml").read_text().replace("[1, 2, 3]", "[1, 2]"))
    ran(project / "shards", "--shard", "1/1")

    passed = nsa_harness("report", "merge", "shards", "three.yaml", "--runs", "passed")
    done = nsa_harness("report", "merge", "shards", "three.yaml", "other.yaml", "--runs", "merged")

    assert passed.exit_code == 0, passed.output
    assert done.exit_code == 6
    assert "other.yaml: no job left a run of it at or below shards" in done.stderr
    assert len(list(Path("merged").iterdir())) == 2
    run_dir = next(path for path in Path("merged").iterdir() if path.name.endswith("-other"))
    for form in ("terminal", "short", "github", "md", "html", "junit", "json"):
        text = " ".join(nsa_harness("report", run_dir, "--format", form).output.split())
        assert "2 cells of every shard were not run" in text, form
        assert not re.search(r"PASS: nothing failed|all \d+ passed|every trial passed|✅", text, re.IGNORECASE), form
    assert nsa_harness("ci", "annotate", run_dir).output.startswith("::warning title=every shard")
    assert nsa_harness("fsck", run_dir).exit_code == 0


def test_where_no_job_left_any_run_the_merge_names_the_command_that_runs_the_matrix(project):
    done = nsa_harness("report", "merge", "shards", "three.yaml", "--runs", "merged")

    assert done.exit_code == 6
    run_dir = next(Path("merged").iterdir())
    (part,) = History.read(run_dir).question.lost
    assert part.invocation.argv == ("nsa-harness", "matrix", "run", "three.yaml")
    assert shlex.join(part.invocation.argv) in done.stdout
    again = nsa_harness("report", "merge", run_dir, "--runs", "again")
    assert again.exit_code == 6, "a merge keeps what an earlier one had missed"
    assert "3 cells of every shard were not run" in " ".join(again.stdout.split())
    nsa_harness(*part.invocation.argv[1:], "--runs", "shards")
    whole = nsa_harness("report", "merge", "shards", "merged", "three.yaml", "--runs", "whole")
    assert whole.exit_code == 1
    assert "3 cells: 2 PASS, 1 CRASH (ValueError)" in whole.output
    assert "not run" not in whole.output


def test_a_file_is_of_the_runs_that_ask_the_same_from_another_place(project):
    ran(project / "shards", "--shard", "1/1", "--max-trials", 9)
    (project / "elsewhere").mkdir()
    (project / "elsewhere" / "three.yaml").write_text((project / "three.yaml").read_text())

    done = nsa_harness("report", "merge", "shards", "elsewhere/three.yaml", "--runs", "merged")

    assert done.exit_code == 1, done.output
    assert len(list(Path("merged").iterdir())) == 1


def test_the_report_of_a_matrix_file_says_that_it_is_no_run(project):
    """It was said that its machine.json cannot be read."""
    for name in ("three.yaml", project / "three.yaml"):
        done = nsa_harness("report", name)
        assert done.exit_code == 6
        assert f"{name} is a file, and a run is a folder" in done.stderr


def test_a_matrix_file_alone_names_no_runs_to_merge(project):
    assert nsa_harness("report", "merge", "three.yaml").exit_code == 2
    assert nsa_harness("report", "merge", "shards", "absent.yaml").exit_code == 2


def test_a_shard_that_no_cell_was_left_for_is_not_missed(project):
    for shard in (1, 2, 3):
        ran(project / "shards" / str(shard), "--shard", f"{shard}/4")

    done = nsa_harness("report", "merge", "shards", "--runs", "merged")

    assert done.exit_code == 1
    assert "not run" not in done.output


def test_a_run_that_was_merged_before_is_left_out_of_its_folder_and_taken_by_its_name(project, whole):
    for shard in (1, 2):
        cut(whole, project / "runs", shard=shard, of=2)
    for number in (3, 4):
        done = nsa_harness("report", "merge", "runs", "--runs", "runs")
        assert done.exit_code == 1, done.output  # a cell fails, as planted
        assert len(list((project / "runs").iterdir())) == number
    shards = [path for path in (project / "runs").iterdir() if "--shard" in (path / "journal.jsonl").read_text()]
    merged = next(path for path in (project / "runs").iterdir() if path not in shards)
    done = nsa_harness("report", "merge", merged, *shards)
    assert done.exit_code == 2
    assert re.search(r"both ran (baseline|n=\d), and are not the same shard", done.output)
    assert "Name the shards alone" in done.output


BROKEN = TRAIN.replace("== '3'", "in '23'")


def git(*argv: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    return subprocess.run(["git", *who, *argv], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def of_two_commits(project) -> tuple[Path, Result, list[str]]:
    """The merge of three shards, one cell each, the second of which ran another commit; and the commits in order."""
    git("init", "--quiet")
    (project / ".gitignore").write_text("shards\nmerged\n")
    commits: list[str] = []
    for shard, program in ((1, TRAIN), (2, BROKEN), (3, TRAIN)):
        (project / "train.py").write_text(program)
        git("add", ".")
        git("commit", "--quiet", "--allow-empty", "-m", "one") if shard < 3 else git("checkout", "--force", commits[0])
        commits.append(git("rev-parse", "--short=12", "HEAD"))
        ran(project / "shards" / str(shard), "--shard", f"{shard}/3")
    done = nsa_harness("report", "merge", "shards", "--runs", "merged")
    return next((project / "merged").iterdir()), done, commits


def test_shards_of_different_commits_are_named_with_them_and_their_cells_not_compared(of_two_commits):
    run_dir, done, (first, second, _) = of_two_commits
    assert first != second

    ran_which = f"shard 1/3, shard 3/3 ran commit {first}; shard 2/3 ran commit {second}"
    assert ran_which in " ".join(done.stderr.split())
    for form in ("terminal", "short", "github", "md", "html", "json", "junit"):
        assert ran_which in " ".join(nsa_harness("report", run_dir, "--format", form).output.split()), form
    page = (run_dir / "report.md").read_text()

    assert "| `n` | 1 | 0 | 1 | 0 |" in page, "n=1 and n=3 ran the same commit, and n=2 another"
    assert "It was seen" not in page
    assert f"next: Run shard 2/3 at commit {first}, then merge again" in " ".join(done.stdout.split())
    assert "matrix run three.yaml --shard 2/3" in done.stdout


def test_the_page_of_a_run_names_the_commit_of_its_program(project):
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "one")
    commit = git("rev-parse", "--short=12", "HEAD")

    clean = ran(project / "clean").run_dir
    (project / "train.py").write_text(BROKEN)
    changed = ran(project / "changed").run_dir

    assert f"| the program | commit {commit} |" in (clean / "report.md").read_text()
    assert f"| the program | commit {commit} with uncommitted changes (" in (changed / "report.md").read_text()
