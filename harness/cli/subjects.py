"""What ``watch`` looks at: a job of this machine, or one of Slurm with all of its nodes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from harness.core.campaign import ForeignJob
    from harness.core.evidence import Evidence
    from harness.core.node import Node
    from harness.core.outcome import Outcome
    from harness.core.trial import Trial
    from harness.observe.job import JobTree, Member
    from harness.observe.procfs import Files


Subject: TypeAlias = "Here | OfSlurm"
"""A job that somebody else started: ``name`` is what it is called, ``job`` what is told of it in its report."""


class Here:
    """The job of a process of this machine."""

    def __init__(self, pid: int) -> None:
        """Find it.

        Raises:
            NoJobError: no such process, or no Python process in its tree.
        """
        from harness.observe.job import ProcTree

        self._pid, self._tree = pid, ProcTree(named=pid)
        self._at = self._present()
        self.name = f"process {pid} ({self._at.launcher.command})"
        self.job = _job_of(self._at)

    def to_end(self, stuck: int | None) -> str:
        """The command that ends it, of which the process ``stuck`` hangs; empty where that would end ourselves."""
        import os

        from harness.observe.job import ancestors
        from harness.observe.proc import Proc
        from harness.observe.to_end import to_end

        above = ancestors(os.getpid())
        return to_end(self._at, stuck=stuck, tree=self._tree, above=above, is_deaf=Proc().is_deaf_to_the_end)

    def still_there(self) -> bool:
        """Whether it has not ended; from now on it is looked at as it is now."""
        from harness.observe.job import NoJobError, is_same

        if not any(is_same(worker.member) for worker in self._at.workers):
            return False
        try:
            self._at = self._present()
        except NoJobError:  # it has ended between two looks at the table
            return False
        return True

    def look(
        self, trial: Trial, *, folder: Path, keeps_locals: bool, note: Callable[[str], None]
    ) -> tuple[Outcome, Evidence]:
        """The job watched for some seconds."""
        from harness.classify.engine import classify
        from harness.clock import WallClock
        from harness.core.verdict import Case
        from harness.observe.attach import Looker, eyes
        from harness.observe.job import is_same

        return Looker(
            job=self._at,
            trial=trial,
            folder=folder,
            clock=WallClock(),
            eyes=eyes(keeps_locals=keeps_locals),
            is_same=is_same,
            judge=lambda outcome, evidence: classify(Case(trial=trial, outcome=outcome, evidence=evidence)),
            note=note,
            tree=self._tree,
        ).run()

    def _present(self) -> JobTree:
        from harness.observe.job import find_job

        return find_job(self._pid, tree=self._tree)


def _job_of(tree: JobTree) -> ForeignJob:
    """What is told of a job of this machine by the process of its first rank, command lines without secrets."""
    import os
    import socket

    from harness.core.campaign import ForeignJob
    from harness.observe.procfs import Files

    files, member = Files(), tree.members[0]
    since_boot_s = float((files.text("uptime") or "0").split()[0])
    age_s = since_boot_s - member.started / os.sysconf("SC_CLK_TCK")
    return ForeignJob(
        command=_command(member, files),
        directory=files.link(f"{member.pid}/cwd"),
        host=socket.gethostname(),
        age_s=round(age_s, 1) if age_s > 0 else None,
        others=tuple(f"process {other.pid}, {_command(other, files)}" for other in tree.beside_the_first),
    )


def _command(member: Member, files: Files) -> str:
    import shlex

    from harness.store.redact import redact_argv

    words = files.parts(f"{member.pid}/cmdline") or member.argv.split() or [member.command]  # it has just ended
    return shlex.join(redact_argv(words))


class OfSlurm:
    """A job of Slurm, seen by an agent on each of its nodes."""

    def __init__(self, job: str, members: list[Any]) -> None:
        from harness.core.campaign import ForeignJob

        self._job, self._members = job, members
        self.name = f"job {job} of Slurm"
        self.job = ForeignJob()

    def to_end(self, stuck: int | None) -> str:
        """The command that ends it, whichever of its processes is ``stuck``."""
        return f"scancel {self._job}"

    def still_there(self) -> bool:
        """Whether it has not ended."""
        from harness.cluster.onlook import NoSlurmJobError, nodes_of

        try:
            return nodes_of(self._job) > 0
        except NoSlurmJobError:
            return False

    def look(
        self, trial: Trial, *, folder: Path, keeps_locals: bool, note: Callable[[str], None]
    ) -> tuple[Outcome, Evidence]:
        """The job watched for some seconds, on all of its nodes at once."""
        from dataclasses import replace

        from harness.cluster.joint import lasted_s
        from harness.cluster.onlook import ask
        from harness.core.campaign import ForeignJob
        from harness.core.codec import from_json, to_json
        from harness.core.columns import from_columns
        from harness.core.evidence import Evidence
        from harness.core.outcome import Outcome
        from harness.reading.join import join
        from harness.store.redact import redact_argv

        note(f"watching it on {len(self._members)} node(s)")
        order = {"slurm": self._job, "trial": to_json(trial), "locals": keeps_locals}
        answers, failures = ask(self._members, order)
        for failure in failures:
            note(f"not seen: {failure}")
        hosts = ", ".join(node.host for node, _ in answers)
        self.job = ForeignJob(command=" ".join(redact_argv(answers[0][1]["command"].split())), host=hosts)
        parts: list[tuple[Node, Outcome, Evidence]] = []
        there: list[Outcome] = []
        for node, answer in answers:
            outcome = from_json(Outcome, answer["outcome"])
            parts.append((node, outcome, from_columns(Evidence, answer["evidence"])))
            if outcome.exit is None:
                there.append(outcome)
        return replace((there or [parts[0][1]])[0], duration_s=lasted_s(parts)), join(parts)


@contextmanager
def subject_of(pid: int | None, slurm: str | None, *, note: Callable[[str], None]) -> Generator[Subject]:
    """What the command line names; a job of Slurm is left by its agents when the block is."""
    if slurm is None:
        yield Here(pid or 0)
        return
    from harness.cluster.onlook import onlookers

    with onlookers(slurm, note=note) as members:
        yield OfSlurm(slurm, members)
