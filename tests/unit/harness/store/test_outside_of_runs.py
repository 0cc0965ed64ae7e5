"""What cannot be written and is no part of a run calls for another place; nothing is told of runs or of --resume."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.main import main
from harness.core.errors import NoPlaceError, StoreError
from harness.store.files import outside_of_runs, write_atomic, write_failed


def test_a_full_disk_and_a_folder_that_is_none_end_in_the_same_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(NoPlaceError, match="Not a directory"), outside_of_runs(tmp_path):
        (tmp_path / "file" / "below").mkdir()
    monkeypatch.setattr(os, "fsync", _is_full)
    full = r"No space left on device \(.* free in the file system at .*\)"
    with pytest.raises(NoPlaceError, match=full) as error, outside_of_runs(tmp_path):
        write_atomic(tmp_path / "report.md", "text")
    assert error.value.help == "Nothing else was to be done. Free some space or choose another place, and say it again."


def test_an_error_of_a_run_names_resume_for_searches_alone():
    assert StoreError.help.endswith("; a search goes on with --resume.")


@pytest.mark.parametrize("argv", [("ci", "init", "one.yaml"), ("matrix", "copy", "file/below")])
def test_a_command_that_writes_files_says_which_one_could_not_be_and_leads_to_no_run(argv, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text("version: 1\nname: one\naxes:\n  n_layers: {type: ordered, values: [1, 2]}\n")
    for name in ("file", ".github"):
        (tmp_path / name).touch()
    done = CliRunner().invoke(main, list(argv), prog_name="nsa-harness")
    assert done.exit_code == 6
    assert done.stderr.startswith("nsa-harness: cannot write ")
    assert "Choose a place in a folder that is there, and say it again" in " ".join(done.stderr.split())
    assert "--" not in done.stderr


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "Choose a place that you may write to with --runs"),
        (errno.EROFS, "Choose a place that you may write to with --runs"),
        (errno.ENOENT, "Choose a place in a folder that is there with --runs"),
        (errno.ENOTDIR, "Choose a place in a folder that is there with --runs"),
        (errno.ENOSPC, "Free some space or choose another place with --runs"),
        (errno.EDQUOT, "Free some space or choose another place with --runs"),
        (errno.ENAMETOOLONG, "Put right what this line names, or choose another place with --runs"),
    ],
)
def test_a_run_that_cannot_be_begun_is_told_what_fits_its_error(number, advice, tmp_path, monkeypatch):
    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", fails)
    done = CliRunner().invoke(main, ["run", "--runs", str(tmp_path / "a"), "--", "true"], prog_name="nsa-harness")
    assert done.exit_code == 6
    assert os.strerror(number) in done.stderr
    assert advice in " ".join(done.stderr.split())


def test_a_report_that_cannot_be_written_leaves_the_answer_and_its_exit_code(tmp_path, monkeypatch):
    """A program that failed ended with 6, the machine in the way; and --resume was advised, which `run` has not."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fails(_run: object, run_dir: Path, **_: object) -> None:
        raise write_failed(run_dir / "report.md", full, safe="no other file was touched")

    monkeypatch.setattr("harness.report.write.publish", fails)
    for program, code in (("false", 1), ("true", 0)):
        done = CliRunner().invoke(main, ["run", "--runs", str(tmp_path), "--", program], prog_name="nsa-harness")
        assert done.exit_code == code
        (run_dir,) = tmp_path.iterdir()
        assert f"warning: the report is missing: cannot write {run_dir}/report.md: No space left" in done.stderr
        assert f"next: Free some space or choose another place; then nsa-harness report {run_dir}" in done.stderr
        assert "--resume" not in done.stderr
        shutil.rmtree(run_dir)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_run_that_is_there_and_cannot_be_written_is_to_be_copied(number):
    """``bisect --resume RUN`` was told to choose a place with --runs, which that of a run to go on with is not."""
    failed = write_failed(Path("runs/one/lock"), OSError(number, os.strerror(number)), safe="nothing was changed")
    assert failed.help.endswith("Copy the run's folder to a place that you may write to, and name the copy.")


@pytest.mark.parametrize(
    ("named", "advice"),
    [([], "Name a file elsewhere with -o."), (["-o", "x.html"], "or leave -o out to have it printed.")],
)
def test_only_who_gave_o_is_told_to_leave_it_out(named, advice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", _is_full)
    done = CliRunner().invoke(main, ["report", "--index", str(tmp_path), *named], prog_name="nsa-harness")
    assert done.exit_code == 6
    assert " ".join(done.stderr.split()).endswith(advice)


def test_a_guard_that_cannot_write_its_folder_says_where_it_could():
    """It was told that a search goes on with --resume, which a guard has not."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as job:
        done = CliRunner().invoke(main, ["guard", str(job.pid), "--runs", "/proc/x"], prog_name="nsa-harness")
        job.kill()
    assert done.exit_code == 6
    assert done.stderr.startswith("nsa-harness: cannot write /proc/x/guard.jsonl")
    assert " with --runs, and say it again." in " ".join(done.stderr.split())
    assert "--resume" not in done.stderr
    assert "\n    6    the folder" in CliRunner().invoke(main, ["guard", "--help"], prog_name="nsa-harness").stdout


def _is_full(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
