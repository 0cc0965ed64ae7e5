"""The run directory, one function per path; what is written where, and by whom.

runs/<id>/
    spec.json             the question (controller)
    machine.json          the machine and code (controller)
    journal.jsonl         every event, fsynced (controller)
    lock                  held by the controller that works here
    row.json              its row in the list of runs, and what that was made from (controller, when it leaves)
    report.md report.html report.json report.claims.json figures/*.svg (controller)
    repro.py repro.json   the failure without the harness, and how it was tried (controller)
    viewer.html           the page to look into the run with (report --viewer)
    notes.md              what people say about the run (people)
    trials/<key>/
        trial.json        the trial as asked (controller, before the start)
        heartbeat_rank0.jsonl   progress marks, one JSON object a line (worker)
        place_rank0             where a stranger's program with quick steps is, in shared memory (its shim)
        effective.json    the configuration and versions the worker really runs with (worker)
        kernels.json      which kernel runs each operator, and why (worker)
        result_rank0.json       what a rank said last, of one process too (worker, written at once or not at all)
        faulthandler_rank0.txt  stacks that a process wrote itself, asked by a signal
        server_rank0.sock       torch's own server, with several ranks: its flight recorder (worker)
        recorder_rank0 .pipe    the flight recorder of NCCL and the pipe that asks for it (torch)
        stdout.txt stderr.txt   bounded output (supervisor)
        stdout.tail stderr.tail the end of output beyond the bound (supervisor)
        evidence.json     all that was seen (controller)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def spec(run: Path) -> Path:
    """The question."""
    return run / "spec.json"


def machine(run: Path) -> Path:
    """Machine, code and command line."""
    return run / "machine.json"


def journal(run: Path) -> Path:
    """Every event of the run."""
    return run / "journal.jsonl"


def lock(run: Path) -> Path:
    """Held (flock) by the controller that works in this run."""
    return run / "lock"


def row(run: Path) -> Path:
    """Its row in the list of runs."""
    return run / "row.json"


def report(run: Path, kind: str = "md") -> Path:
    """The rendered report (``md`` or ``json``)."""
    return run / f"report.{kind}"


def viewer(run: Path) -> Path:
    """The page to look into the run with, where one was asked for."""
    return run / "viewer.html"


def archive(bundle: Path) -> Path:
    """The evidence of a report that is passed on, in one file."""
    return bundle / "evidence.tar.xz"


def findings(bundle: Path) -> Path:
    """The answer of a report that is passed on, and the counts behind it."""
    return bundle / "findings.json"


def bundle_manifest(run: Path) -> Path:
    """In unpacked evidence of a bundle: whose evidence it does not hold, and why."""
    return run / "bundle.json"


def earlier(run: Path) -> Path:
    """In unpacked evidence of a bundle: what the reports said that it was compared with."""
    return run / "earlier.json"


def notes(run: Path) -> Path:
    """What people say about the run."""
    return run / "notes.md"


def figures(run: Path) -> Path:
    """The folder of the report's figures."""
    return run / "figures"


def repro(run: Path, kind: str = "py") -> Path:
    """The script that shows the failure without the harness (``py``), and how it was tried (``json``)."""
    return run / f"repro.{kind}"


def trial(run: Path, key: str) -> Path:
    """The folder of one trial."""
    return run / "trials" / key


def trial_file(trial_dir: Path) -> Path:
    """The trial as asked."""
    return trial_dir / "trial.json"


def heartbeat(trial_dir: Path, rank: int = 0) -> Path:
    """Progress marks of one rank."""
    return trial_dir / f"heartbeat_rank{rank}.jsonl"


def effective(trial_dir: Path) -> Path:
    """The configuration that the worker really runs with."""
    return trial_dir / "effective.json"


def kernels(trial_dir: Path) -> Path:
    """The kernel resolution table."""
    return trial_dir / "kernels.json"


def result(trial_dir: Path, rank: int = 0) -> Path:
    """What a rank said last; a program of one process is rank 0."""
    return trial_dir / f"result_rank{rank}.json"


def gradients(trial_dir: Path) -> Path:
    """The first step's gradients against the truth."""
    return trial_dir / "gradients.json"


def ranks(trial_dir: Path) -> Path:
    """When each of several ranks began, and how it ended."""
    return trial_dir / "ranks.jsonl"


def faulthandler(trial_dir: Path, rank: int = 0) -> Path:
    """Where faulthandler writes on a signal."""
    return trial_dir / f"faulthandler_rank{rank}.txt"


def recorder(trial_dir: Path, rank: int | None = None) -> Path:
    """Where torch's flight recorder of one rank goes; without a rank, the part that it puts the number behind."""
    return trial_dir / f"recorder_rank{'' if rank is None else rank}"


def recorder_pipe(trial_dir: Path, rank: int) -> Path:
    """The named pipe that makes the flight recorder of NCCL write: one byte is enough."""
    return trial_dir / f"recorder_rank{rank}.pipe"


def recorder_socket(trial_dir: Path, rank: int) -> Path:
    """The socket on which torch's own server in a rank answers, also while another thread holds the GIL."""
    return trial_dir / f"server_rank{rank}.sock"


def doors(trial_dir: Path) -> list[Path]:
    """Sockets and named pipes of ranks: nothing to keep, and whoever reads a run's files would wait at a pipe."""
    return [*trial_dir.glob("server_rank*.sock"), *trial_dir.glob("recorder_rank*.pipe")]


def output(trial_dir: Path, stream: str) -> Path:
    """The beginning of ``stdout`` or ``stderr``, up to half the bound."""
    return trial_dir / f"{stream}.txt"


def output_tail(trial_dir: Path, stream: str) -> Path:
    """The end of an output stream that outgrew the first half of its bound."""
    return trial_dir / f"{stream}.tail"


def evidence(trial_dir: Path) -> Path:
    """All that was seen of the trial."""
    return trial_dir / "evidence.json"
