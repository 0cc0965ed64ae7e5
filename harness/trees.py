"""Trees: the program as it was at a commit, each commit in a git worktree of its own."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import harness
from harness.core.errors import CommandError, SpecError
from harness.spec.inline import git
from harness.store import layout
from harness.store.files import write_atomic
from harness.store.redact import redact

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from harness.core.campaign import CampaignSpec
    from harness.core.matrix import Matrix

SCRIPTS = frozenset({".py", ".sh"})
"""How the names of files end that are run, and not read."""

LIMIT_S = 120.0
"""How long git may take for one worktree."""


@dataclass(eq=False, slots=True, kw_only=True)
class Worktrees:
    """The commits of ``repository`` as folders below ``folder``.

    With ``package``, a trial gets a folder that holds links to that package of the commit and to the harness as it
    is now, and nothing else: it is meant for PYTHONPATH, and an old commit's harness must not judge its own trial.
    """

    repository: Path
    folder: Path
    package: str | None = None
    trees: dict[str | None, str | None] = field(default_factory=dict["str | None", "str | None"])
    names: dict[str, str] = field(default_factory=dict[str, str])

    def at(self, commit: str | None) -> str | None:
        """The folder of ``commit``, made when it is asked for first.

        Raises:
            SpecError: git knows no such commit, or cannot make the worktree.
        """
        if commit not in self.trees:
            self.trees[commit] = self._make(commit)
        return self.trees[commit]

    def full_name(self, commit: str) -> str:
        """The whole name of ``commit``; SpecError when git knows none."""
        if commit not in self.names:
            self.names[commit] = self._git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").strip()
        return self.names[commit]

    def subjects(self, commits: Iterable[str]) -> dict[str, str]:
        """The first line of each commit's message; SpecError when git knows one of them not."""
        by_name: dict[str, str] = {}
        for commit in commits:
            by_name[commit] = self.full_name(commit)
        lines = self._git("log", "--no-walk", "--format=%H %s", *dict.fromkeys(by_name.values())).splitlines()
        by_full_name = dict(line.split(" ", 1) for line in lines)
        return {commit: by_full_name[full] for commit, full in by_name.items()}

    def close(self) -> None:
        """Take the worktrees of the run out of the repository's list again."""
        made = self.folder.iterdir() if self.folder.is_dir() else ()
        for path in sorted(made):
            if (path / ".git").is_file():  # also one of a controller that was killed
                self._git("worktree", "remove", "--force", str(path))

    def _make(self, commit: str | None) -> str | None:
        if commit is None:
            return None if self.package is None else self._linked("now", _home(self.package))
        full = self.full_name(commit)
        path = self.folder / full[:12]
        if not path.exists():
            self._git("worktree", "prune")
            self._git("worktree", "add", "--detach", "--quiet", str(path), full)
        if self.package is None:
            return str(path)
        if not (path / self.package).is_dir():
            raise SpecError(f"commit {commit} has no package {self.package!r}, so it cannot be run")
        return self._linked(f"{full[:12]}-packages", path / self.package)

    def _linked(self, name: str, package: Path) -> str:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        for link, place in ((package.name, package), ("harness", Path(harness.__file__).parent)):
            if not (folder / link).is_symlink():
                (folder / link).symlink_to(place, target_is_directory=True)
        return str(folder)

    def _git(self, *argv: str) -> str:
        return git(self.repository, *argv, limit_s=LIMIT_S)


@contextmanager
def trees_for(spec: CampaignSpec, run_dir: Path) -> Generator[Worktrees | None]:
    """The trees that a campaign's trials need; None when all of them run the present program as it is."""
    bundles = [spec.matrix.base, *spec.matrix.space.bundles]
    if not any(bundle.commit or bundle.python for bundle in bundles):
        yield None
        return
    package = "nsa" if spec.matrix.target == "nsa" else None
    trees = Worktrees(
        repository=repository_of(spec.matrix.target), folder=run_dir.absolute() / "trees", package=package
    )
    commits = list(filter(None, (bundle.commit for bundle in bundles)))
    with suppress(SpecError):  # what a commit is called decides nothing: its trial says what is wrong with it
        subjects = trees.subjects(commits) if commits else {}
        write_atomic(layout.commits(run_dir), json.dumps(redact(subjects), indent=1) + "\n")
    try:
        yield trees
    finally:
        trees.close()


def prove_of_commits(matrix: Matrix) -> None:
    """Refuse a command that starts a file of the checkout by its whole path: it is the same one at every commit.

    A file that git does not track, such as an interpreter of a virtual environment in the checkout, may be named so.

    Raises:
        CommandError: which word, and what to write instead.
    """
    if not matrix.command or not any(bundle.commit for bundle in matrix.space.bundles):
        return
    repository = repository_of(matrix.target)
    top = Path(git(repository, "rev-parse", "--show-toplevel").strip())
    for word in matrix.command:
        path = Path(word).resolve() if Path(word).is_absolute() else Path()
        is_there = path.suffix in SCRIPTS and path.is_relative_to(top)
        if is_there and git(repository, "ls-files", "--", str(path)):
            raise CommandError(
                f"{word} is the file of this checkout at every commit; write {path.relative_to(top)}, which is that of "
                "each commit: a trial runs in a folder with the commit's own files"
            )


def repository_of(target: str) -> Path:
    """Where the commits of a target's program are: our trainer's own checkout, or the present folder."""
    return _home("nsa").parent if target == "nsa" else Path.cwd()


def _home(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SpecError(f"the package {package!r} is not installed here")
    return Path(spec.origin).parent
