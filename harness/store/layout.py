"""The run directory, one function per path; what is written where, and by whom.

runs/<id>/
    spec.json             the question (controller)
    machine.json          the machine and code (controller)
    journal.jsonl         every event, fsynced (controller)
    lock                  held by the controller that works here
    commits.json          the subject of every commit that is tried (controller, where commits are an axis)
    row.json              its row in the list of runs, and what that was made from (controller, when it leaves)
    report.md report.html report.json report.claims.json figures/*.svg (controller)
    repro.py repro.json   the failure without the harness, and how it was tried (controller)
    viewer.html           the page to look into the run with (report --viewer)
    notes.md              what people say about the run (people)
    trials/<key>/
        trial.json        the trial as asked (controller, before the start)
        heartbeat_rank0.jsonl   progress marks, one JSON object a line (worker)
        place_rank0             where a stranger's program with quick steps is, in shared memory (its shim)
        handlers_4711           for which signals Python has handlers in a rank, by its PID (its shim)
        effective.json    the configuration and versions the worker really runs with (worker)
        kernels.json      which kernel runs each operator, and why (worker)
        result_rank0.json       what a rank said last, of one process too (worker, written at once or not at all)
        faulthandler_rank0.txt  stacks that a process wrote itself, asked by a signal
        server_rank0.sock       torch's own server, with several ranks: its flight recorder (worker)
        recorder_rank0 .pipe    the flight recorder of NCCL and the pipe that asks for it (torch)
        recorder_rank0.asked    since when it has been asked for and may be being written (controller)
        stdout.txt stderr.txt   bounded output (supervisor)
        stdout.tail stderr.tail the end of output beyond the bound (supervisor)
        evidence.json     all that was seen (controller)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _file(name: str) -> Callable[[Path], Path]:
    """Where ``name`` lies in a folder: of a run, of a bundle or of a trial."""
    return lambda folder: folder / name


def _named(pattern: str, usual: object = "") -> Callable[..., Path]:
    """Where the file of one rank, process, stream or kind lies in a folder; ``usual`` is the one that is meant."""

    def place(folder: Path, which: object = usual) -> Path:
        return folder / pattern.format(which)

    return place


spec = _file("spec.json")
"""The question."""
machine = _file("machine.json")
"""Machine, code and command line."""
journal = _file("journal.jsonl")
"""Every event of the run."""
lock = _file("lock")
"""Held (flock) by the controller that works in this run."""
row = _file("row.json")
"""Its row in the list of runs."""
commits = _file("commits.json")
"""The subjects of the commits that are tried, by the names that the question has for them."""
viewer = _file("viewer.html")
"""The page to look into the run with, where one was asked for."""
archive = _file("evidence.tar.xz")
"""The evidence of a report that is passed on, in one file."""
findings = _file("findings.json")
"""The answer of a report that is passed on, and the counts behind it."""
bundle_manifest = _file("bundle.json")
"""In unpacked evidence of a bundle: whose evidence it does not hold, and why."""
earlier = _file("earlier.json")
"""In unpacked evidence of a bundle: what the reports said that it was compared with."""
notes = _file("notes.md")
"""What people say about the run."""
figures = _file("figures")
"""The folder of the report's figures."""

trial_file = _file("trial.json")
"""The trial as asked."""
effective = _file("effective.json")
"""The configuration that the worker really runs with."""
kernels = _file("kernels.json")
"""The kernel resolution table."""
gradients = _file("gradients.json")
"""The first step's gradients against the truth."""
ranks = _file("ranks.jsonl")
"""When each of several ranks began, and how it ended."""
evidence = _file("evidence.json")
"""All that was seen of the trial."""

report = _named("report.{}", "md")
"""The rendered report (``md``, ``html`` or ``json``)."""
repro = _named("repro.{}", "py")
"""The script that shows the failure without the harness (``py``), and how it was tried (``json``)."""
trial = _named("trials/{}")
"""The folder of one trial, by its key."""

heartbeat = _named("heartbeat_rank{}.jsonl", 0)
"""Progress marks of one rank."""
result = _named("result_rank{}.json", 0)
"""What a rank said last; a program of one process is rank 0."""
faulthandler = _named("faulthandler_rank{}.txt", 0)
"""Where faulthandler writes on a signal."""
handlers = _named("handlers_{}")
"""For which signals Python has handlers in a rank, by the PID that it calls itself by."""
own_handlers = _named("own_handlers_{}")
"""For which signals the program's own code has handlers, by the PID that the process calls itself by."""
ended_children = _named("ended_children_{}")
"""Which processes multiprocessing began for one, and did not end well, by the PID that this one calls itself by."""
armed = _named("armed_{}")
"""Of a Python process that began with an alarm set, by the PID that it calls itself by."""
recorder = _named("recorder_rank{}")
"""Where torch's flight recorder of one rank goes; without a rank, the part that it puts the number behind."""
recorder_pipe = _named("recorder_rank{}.pipe")
"""The named pipe that makes the flight recorder of NCCL write: one byte is enough."""
recorder_asked = _named("recorder_rank{}.asked")
"""What is touched before the flight recorder is asked: a rank that ends waits for a record that is not newer."""
recorder_socket = _named("server_rank{}.sock")
"""The socket on which torch's own server in a rank answers, also while another thread holds the GIL."""
output = _named("{}.txt")
"""The beginning of ``stdout`` or ``stderr``, up to half the bound."""
output_tail = _named("{}.tail")
"""The end of an output stream that outgrew the first half of its bound."""


def doors(trial_dir: Path) -> list[Path]:
    """Sockets and named pipes of ranks: nothing to keep, and whoever reads a run's files would wait at a pipe."""
    patterns = ("server_rank*.sock", "recorder_rank*.pipe", "recorder_rank*.asked")
    return [path for pattern in patterns for path in trial_dir.glob(pattern)]


ENTRIES = 2000
"""Operations that the recorder keeps (its own default where it is on): a few hundred bytes each."""


def recorder_environment(trial_dir: Path) -> dict[str, str]:
    """Variables with which every rank's recorder writes to the trial's folder when asked through its pipe.

    No time-out of torch's own is needed for that. With timing the recorder also tells an operation that has begun on
    its device from one that waits there behind another kernel. torch 2.11 keeps no record
    unless told; from 2.13 on it does.
    """
    prefix = str(recorder(trial_dir))
    return {
        "TORCH_FR_BUFFER_SIZE": str(ENTRIES),
        "TORCH_FR_DUMP_TEMP_FILE": prefix,
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": prefix,
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_ENABLE_TIMING": "1",
    }
