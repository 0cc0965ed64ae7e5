"""A commit's worktree is taken out of the repository again, whoever made it."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from harness.core.errors import CommandError
from harness.core.matrix import Matrix
from harness.core.space import Space
from harness.spec.inline import elsewhere_factor
from harness.trees import Worktrees, prove_of_commits


def git(folder, *argv):
    names = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(["git", "-C", folder, *names, *argv], capture_output=True, text=True, check=True).stdout


def test_a_resumed_run_takes_out_the_worktrees_of_the_controller_that_was_killed(tmp_path):
    repository, folder = tmp_path / "repository", tmp_path / "run" / "trees"
    repository.mkdir()
    git(repository, "init", "-q")
    git(repository, "commit", "-q", "--allow-empty", "-m", "one")
    killed = Worktrees(repository=repository, folder=folder)
    killed.at("HEAD")
    assert len(git(repository, "worktree", "list").splitlines()) == 2

    Worktrees(repository=repository, folder=folder).close()

    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_the_subjects_of_commits_are_those_of_their_messages_by_any_name(tmp_path):
    git(tmp_path, "init", "-q")
    for message in ("one", "two: a\n\nmore of it", ""):
        git(tmp_path, "commit", "-q", "--allow-empty", "--allow-empty-message", "-m", message)
    git(tmp_path, "tag", "v2", "HEAD~1")
    trees = Worktrees(repository=tmp_path, folder=tmp_path / "trees")

    names = ["HEAD~2", "v2", "HEAD~1", "HEAD"]
    assert trees.subjects(names) == {"HEAD~2": "one", "v2": "two: a", "HEAD~1": "two: a", "HEAD": ""}


def test_a_script_of_the_checkout_by_its_whole_path_is_no_program_of_each_commit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "-q")
    (tmp_path / "sub").mkdir()
    for name in ("sub/train.py", "data.yaml"):
        (tmp_path / name).write_text("")
    git(tmp_path, "add", "-A")
    for number in range(2):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", str(number))
    (tmp_path / "untracked.py").write_text("")
    space = Space(factors=(elsewhere_factor("commit=HEAD~1..HEAD", repository=tmp_path),))
    matrix = Matrix(name="m", target="command", space=space)

    with pytest.raises(CommandError, match=r"this checkout at every commit; write sub/train\.py, which"):
        prove_of_commits(replace(matrix, command=("python", f"{tmp_path}/sub/train.py")))
    for script in ("sub/train.py", f"{tmp_path}/untracked.py", f"{tmp_path}/data.yaml", "/elsewhere/train.py"):
        prove_of_commits(replace(matrix, command=("python", script)))
