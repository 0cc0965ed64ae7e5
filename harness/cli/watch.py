"""nsa-harness watch: a job that is already running, seen from outside, judged and reported."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from harness.cli.options import DURATION, JSON, LOCALS, PID, SLURM

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from harness.core.campaign import ForeignJob
    from harness.core.evidence import Evidence
    from harness.core.node import Node
    from harness.core.outcome import Outcome
    from harness.core.record import TrialRecord
    from harness.core.trial import Trial
    from harness.core.verdict import Verdict
    from harness.observe.job import JobTree, Member
    from harness.observe.procfs import Files
    from harness.settings import Settings
    from harness.store.run_store import RunStore


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


EPILOG = """\b
Examples:
  nsa-harness watch 4242             a rank, torchrun, or the shell above
  nsa-harness watch 1                in a container whose first process
                                     is the job or its shell
  nsa-harness watch 4242 --follow    until that changes, it ends, or Ctrl-C
  nsa-harness watch --slurm 17       all nodes of a job of Slurm, as one case
  nsa-harness watch 4242 --json | jq -r .verdict.because
\b
Exit codes:
  0    no hang was seen: something of the job works
  1    it hangs, or a rank has ended while others wait for it
  2    wrong use, no such process or job, or no Python process in it
  3    inconclusive: what it waits for may still come, or it has just ended
  6    nobody may look into it (ptrace refused, py-spy missing)
  130  interrupted
"""


@click.command(epilog=EPILOG)
@PID
@SLURM
@click.option("--follow", is_flag=True, help="Watch on until the verdict changes, the job ends, or Ctrl-C.")
@click.option("--every", type=DURATION, default="30s", show_default=True, help="Rest between two looks of --follow.")
@LOCALS
@click.option("--runs", metavar="DIR", help="Where the report goes (default: ./runs, or NSA_HARNESS_RUNS).")
@JSON
@click.option("--no-report", "bare", is_flag=True, help="Keep the evidence only; nsa-harness report RUN writes it up.")
@click.pass_context
def watch(
    ctx: click.Context,
    *,
    pid: int | None,
    slurm: str | None,
    follow: bool,
    every: float,
    keeps_locals: bool,
    runs: str | None,
    as_json: bool,
    bare: bool,
) -> None:
    """Say what the running job around PID does, whether it hangs, where, and which rank keeps the others waiting.

    PID is any process of the job; it need not have been started by nsa-harness and is not ended or signalled. Takes
    five to ten seconds, up to forty on a busy machine. A process that sleeps at every look, even one that often
    wakes, is stopped five times as a rule to see its native frames: for 0.05 to 0.5 s each, some seconds on a very
    busy machine; the answer has the milliseconds. With --slurm an agent is put beside the job's ranks on each node, and
    goes when that is over.
    """
    from harness.cli.console import progress
    from harness.cli.exit_codes import ExitCode, of_watched
    from harness.clock import WallClock
    from harness.report.words import so_far
    from harness.settings import Settings

    if (pid is None) == (slurm is None):
        raise click.UsageError("give a PID, or --slurm JOBID")
    clock = WallClock()
    began_s, note = clock.now(), progress(now=clock.now)
    with subject_of(pid, slurm, note=note) as subject, _store(Settings.read(runs=runs), subject) as store:
        try:
            record = _look(store, subject, repeat=0, keeps_locals=keeps_locals, note=note)
            while follow and _same(first := store.records()[0].verdict, record.verdict) and subject.still_there():
                click.echo(f"watching on every {every:g} s: {so_far(first)}", err=True)
                clock.sleep(every)
                if not subject.still_there():
                    break
                number = len(store.records())
                look = _look(store, subject, repeat=number, keeps_locals=keeps_locals, note=note)
                if not subject.still_there():
                    break  # it ended under our eyes: the look before stands
                record = look
        except KeyboardInterrupt:
            store.add_end(why="interrupted", seconds=clock.now() - began_s)
            click.echo("interrupted; the job was not touched", err=True)
            ctx.exit(ExitCode.INTERRUPTED)
        evidence = _tell(store, record, subject, lasted_s=clock.now() - began_s, as_json=as_json, bare=bare)
        if not bare:
            from harness.cli.foreign import write_report

            write_report(store)
        ctx.exit(of_watched(record.verdict, has_stacks=evidence is not None and bool(evidence.stacks)))


def _same(one: Verdict, other: Verdict) -> bool:
    return (one.kind, one.cause, one.rank) == (other.kind, other.cause, other.rank)


def _store(settings: Settings, subject: Subject) -> RunStore:
    from harness.cli.foreign import command_line
    from harness.cli.wiring import new_run
    from harness.solo import foreign_question

    question = foreign_question(name="watch", question=f"What does {subject.name} do?")
    return new_run(settings, question, argv=command_line())


def _look(
    store: RunStore, subject: Subject, *, repeat: int, keeps_locals: bool, note: Callable[[str], None]
) -> TrialRecord:
    """The job watched for some seconds, judged and kept."""
    from harness.classify.engine import classify
    from harness.clock import WallClock
    from harness.conduct import Conducted
    from harness.core.verdict import Answer, Case
    from harness.solo import foreign_trial

    trial = foreign_trial(
        subject.job.command or subject.name,
        code=store.identity.code,
        machine=store.identity.machine.fingerprint,
        why="the job is not ours to end",
        repeat=repeat,
    )
    started_at, folder = WallClock().wall(), store.add_start(trial)
    outcome, evidence = subject.look(trial, folder=folder, keeps_locals=keeps_locals, note=note)
    verdict = classify(Case(trial=trial, outcome=outcome, evidence=evidence))
    conducted = Conducted(outcome=outcome, evidence=evidence, verdict=verdict, started_at=started_at)
    record = conducted.record(trial, answer=Answer.UNRESOLVED)
    store.write_evidence(trial.key, evidence)
    store.add_record(record)
    return record


def _tell(
    store: RunStore, record: TrialRecord, subject: Subject, *, lasted_s: float, as_json: bool, bare: bool
) -> Evidence | None:
    """The answer, before the report, because somebody waits for it; gives the evidence of ``record``."""
    import json
    from dataclasses import replace

    from harness.classify.rules.unresolved import ENDED
    from harness.cli.console import result
    from harness.core.campaign import CampaignAnswer
    from harness.core.codec import to_json
    from harness.report import one
    from harness.report.stacks import deciding_sample
    from harness.report.watched import stops_of
    from harness.store import layout

    by_trial: dict[str, Evidence] = {}
    for look in (*store.records(), record):
        if (of_it := store.read_evidence(look.trial.key)) is not None:
            by_trial[look.trial.key] = of_it
    evidence = by_trial.get(record.trial.key)
    there = subject.still_there()
    is_over = not there and record.verdict.cause != ENDED
    sample = deciding_sample(evidence, record.verdict) if evidence is not None else None
    end_it = subject.to_end(sample.pid if sample is not None else None) if there else ""
    job = replace(subject.job, end_it=end_it, is_over=is_over)
    store.add_end(why="answered", seconds=lasted_s, answer=CampaignAnswer(job=job))
    stuck = _stuck(record, evidence)
    if as_json:
        answer = {
            "run": str(store.run_dir),
            "verdict": to_json(record.verdict),
            "job": to_json(job),
            "stuck": to_json(stuck),
            "stopped": to_json(stops_of(by_trial.values())),
            "unseen": [failure.reason for failure in evidence.failures] if evidence and not evidence.stacks else [],
        }
        click.echo(json.dumps(answer, indent=1))
    else:
        argv = store.run().argv if there else ()
        label, where = ("evidence", store.run_dir) if bare else ("report", layout.report(store.run_dir))
        result(lambda: one.watched(record, by_trial, job=job, where=where, argv=argv, label=label, stuck=stuck))
    return evidence


def _stuck(record: TrialRecord, evidence: Evidence | None) -> tuple[Verdict, ...]:
    """Processes that hang for certain in a job that does not."""
    from harness.classify.rules.stalled import stuck_parts
    from harness.core.verdict import Case, Kind

    if evidence is None or record.verdict.kind is Kind.HANG or not evidence.stacks:
        return ()
    return stuck_parts(Case(trial=record.trial, outcome=record.outcome, evidence=evidence))
