"""Runs: the run directories in a folder, and what each of them holds, read without a lock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.campaign import CampaignSpec
from harness.core.errors import DamagedError, NoRunError, StoreError
from harness.core.record import CampaignRun
from harness.store import layout
from harness.store.archive import unpacked
from harness.store.history import History, read_question

if TYPE_CHECKING:
    from harness.core.record import Run


def read_run(run_dir: Path) -> Run:
    """The run along one axis in ``run_dir`` for a report; needs no lock and changes nothing."""
    return History.read(run_dir).run()


def read_campaign(run_dir: Path) -> CampaignRun:
    """The run of a matrix in ``run_dir`` for a report; needs no lock and changes nothing."""
    return History.read(run_dir).campaign_run()


def read_any(run_dir: Path) -> Run | CampaignRun:
    """The run in ``run_dir`` for a report, along one axis or over many cells."""
    history = History.read(run_dir)
    return history.campaign_run() if isinstance(history.question, CampaignSpec) else history.run()


def is_campaign(run_dir: Path) -> bool:
    """Whether ``run_dir`` holds a run of a matrix."""
    return isinstance(read_question(run_dir), CampaignSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A row in the list of runs; ``problem`` says why a run cannot be read (its other fields are then empty)."""

    directory: Path
    question: str = ""
    started_at: str = ""
    ended: str = ""
    finding: str = ""
    trials: int = 0
    problem: str = ""

    def __str__(self) -> str:
        """One line: name, trials, finding or how it ended, question; or what is wrong with it."""
        if self.problem:
            return f"{self.directory.name}  cannot be read: {self.problem}"
        return f"{self.directory.name}  {self.trials:>4} trials  {self.finding or self.ended}  {self.question}"


def list_runs(runs_dir: Path) -> tuple[RunSummary, ...]:
    """Every run in ``runs_dir``, newest first; those that cannot be read say why instead of hiding."""
    folders = sorted(path.parent for path in runs_dir.glob("*/journal.jsonl"))
    return tuple(sorted((_summary(folder) for folder in folders), key=lambda s: s.started_at, reverse=True))


def find_latest(runs_dir: Path) -> Path:
    """The run that was begun last.

    Raises:
        StoreError: there is none.
    """
    runs = list_runs(runs_dir)
    readable = [summary for summary in runs if not summary.problem]
    if runs and not readable:
        raise DamagedError(f"none of the {len(runs)} runs in {runs_dir} can be read: {runs[0].problem}")
    if not readable:
        raise NoRunError(f"no run in {runs_dir}. Begin one with: nsa-harness bisect --axis n_layers")
    return readable[0].directory


def find_run(runs_dir: Path, name: str | None) -> Path:
    """The directory of the run called ``name``: a path, a name below ``runs_dir``, or the last run (``latest``, None).

    Of a report with its evidence beside it (a bundle) that is its evidence, unpacked in a temporary folder.

    Raises:
        NoRunError: nothing can have that name, or the last run is asked for and there is none.
        DamagedError: it is a bundle whose evidence cannot be unpacked.
    """
    if name is None or name == "latest":
        return find_latest(runs_dir)
    try:
        directory = Path(name) if Path(name).is_dir() else runs_dir / name
        return unpacked(directory) if layout.archive(directory).is_file() else directory
    except OSError as error:
        raise NoRunError(f"{name!r} cannot be the name of a run: {error.strerror}") from error


def _summary(folder: Path) -> RunSummary:
    try:
        run = read_any(folder)
    except StoreError as error:
        return RunSummary(directory=folder, problem=str(error))
    return RunSummary(
        directory=folder,
        question=run.spec.question,
        started_at=run.started_at,
        ended=run.ended,
        finding=_finding(run),
        trials=len(run.records),
    )


def _finding(run: Run | CampaignRun) -> str:
    if isinstance(run, CampaignRun):
        return run.answer.because if run.answer else ""
    return run.boundary.finding.value if run.boundary else ""
