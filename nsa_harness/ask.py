"""The commands as functions: each starts ``nsa-harness``, waits, and gives what its report says as a typed result."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsa_harness import start

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

USAGE, BUDGET, NOTHING, INFRA, INTERNAL, INTERRUPTED = 2, 3, 5, 6, 70, 130
"""Exit statuses of a command that has no answer; ``nsa-harness COMMAND --help`` lists all."""

LAST_LINES = 20


class HarnessError(Exception):
    """The command could not answer: the machine or the instrument is in the way; the message is the command's own."""


class UsageError(HarnessError, ValueError):
    """A question that makes no sense as it was asked; the message says what would."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a command found out. ``str()`` is its short answer; a notebook shows the whole report.

    ``verdict`` is the kind of the deciding trial and its cause, as in ``HANG (deadlock)``; ``answer`` and ``claim`` are
    the report's sentences; ``place`` is the line to look at, empty where none is known. ``folder`` holds the run: its
    journal, ``report.md``, ``report.html``. ``status`` is the command's exit status. ``report`` is ``report.json``, as
    ``nsa-harness report --schema`` describes it.
    """

    verdict: str
    answer: str
    claim: str
    place: str
    folder: Path
    status: int
    report: Mapping[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.answer}\n{self.claim}\nreport: {self.folder / 'report.html'}"

    def _repr_html_(self) -> str:
        """The report's page, kept apart from the notebook's own style."""
        page = (self.folder / "report.html").read_text(encoding="utf-8")
        frame = '<iframe sandbox="" style="width:100%;height:36em;border:1px solid #8a9099"'
        return f'{frame} title="{escape(self.answer)}" srcdoc="{escape(page)}"></iframe>'


@dataclass(frozen=True, kw_only=True)
class Bisected(Result):
    """The answer of a search along one axis.

    ``first_bad`` is the first failing value, ``last_good`` the last passing one; None where there is none. ``finding``
    says which case it is, e.g. ``no failing value``. ``certified``: the last good value passed as often as was asked.
    """

    finding: str
    first_bad: float | str | None
    last_good: float | str | None
    certified: bool


@dataclass(frozen=True, kw_only=True)
class Ran(Result):
    """How a program ended: ``kinds`` has a verdict for each run of it, e.g. ``("PASS", "HANG")``."""

    kinds: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether every run of it passed."""
        return set(self.kinds) == {"PASS"}


@dataclass(frozen=True, kw_only=True)
class Watched(Result):
    """What a running job does. ``kind`` is HANG, SLOW, UNRESOLVED and so on; ``because`` the evidence for it."""

    kind: str
    cause: str
    because: str

    @property
    def hangs(self) -> bool:
        """Whether it hangs, by evidence; False also where nothing is certain."""
        return self.kind == "HANG"


def bisect(
    axis: str,
    *,
    command: Sequence[str] = (),
    fault: str | None = None,
    settings: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    bad: Sequence[str] = (),
    success: Sequence[str] = (),
    startup_s: float | None = None,
    stall_s: float | None = None,
    total_s: float | None = None,
    certify: int | None = None,
    max_trials: int | None = None,
    budget_s: float | None = None,
    runs: str | os.PathLike[str] | None = None,
    quiet: bool = False,
) -> Bisected:
    """From which value of ``axis`` on ``command`` fails; without a command, nsa's own trainer.

    Args:
        axis: as ``--axis`` takes it: ``"layers=1..12"``, ``"seq_len=128..2048*2"``; ``{layers}`` in the command is
            its value.
        command: the program and its arguments.
        fault: a fault to plant into nsa's trainer, e.g. ``"backward-deadlock@n_layers>=5"``.
        settings: what is held fixed: values of other placeholders, or paths of the trainer's configuration.
        env: variables for the program.
        bad: what counts as failing: ``hang``, ``crash``, ``oom``, ``nonfinite`` (default: the first that shows up).
        success: regular expressions that the program's output must show to pass.
        startup_s: longest silence before the first step, seconds.
        stall_s: longest silence after it, seconds; learned by default, as ``total_s``, the longest trial, is.
        total_s: see ``stall_s``.
        certify: passes asked of the last good value.
        max_trials: end after this many trials.
        budget_s: end after this many seconds, with a partial answer.
        runs: where runs are kept (default: ``./runs``, or NSA_HARNESS_RUNS).
        quiet: show no progress on standard error.

    Raises:
        UsageError: the question makes no sense as asked.
        HarnessError: the machine or the instrument is in the way.
        KeyboardInterrupt: Ctrl-C; ``nsa-harness bisect --resume`` goes on.
    """
    options = _options(fault=fault, certify=certify, max_trials=max_trials, runs=runs)
    options += _seconds(startup=startup_s, stall=stall_s, total=total_s, budget=budget_s)
    options += _pairs("--set", settings) + _pairs("--env", env)
    options += [word for kind in bad for word in ("--bad", kind)]
    options += [word for pattern in success for word in ("--success", pattern)]
    status, said = ask(["bisect", "--json", "--axis", axis, *options, *_behind(command)], quiet=quiet)
    report = json.loads(said)
    run = report["run"]
    boundary = run.get("boundary") or (run.get("answer") or {}).get("boundary") or {}
    return Bisected(
        **_common(report, Path(run["directory"]), status),
        finding=boundary.get("finding", "interrupted"),
        first_bad=boundary.get("first_bad"),
        last_good=boundary.get("last_good"),
        certified=boundary.get("certified", False),
    )


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    success: Sequence[str] = (),
    startup_s: float | None = None,
    stall_s: float | None = None,
    limit_s: float | None = None,
    repeat: int | None = None,
    until_fail: bool = False,
    runs: str | os.PathLike[str] | None = None,
    quiet: bool = False,
) -> Ran:
    """How ``command`` ends, run as a supervised trial: whether it passes, hangs, crashes, or is slow.

    Args:
        command: the program and its arguments; it runs in the present folder.
        env: variables for the program.
        success: regular expressions that its output must show to pass, beside exit status 0.
        startup_s: longest silence before its first step, seconds.
        stall_s: longest silence after it, seconds.
        limit_s: longest run, seconds (default: none).
        repeat: run it this often.
        until_fail: run it until it fails, at most ``repeat`` times (then 1000).
        runs: where runs are kept (default: ``./runs``, or NSA_HARNESS_RUNS).
        quiet: show no progress on standard error.

    Raises:
        UsageError: no such program, or an option that makes no sense.
        HarnessError: the machine or the instrument is in the way.
        KeyboardInterrupt: Ctrl-C; the program is ended.
    """
    options = _options(repeat=repeat, runs=runs) + _seconds(startup=startup_s, stall=stall_s, limit=limit_s)
    options += _pairs("--env", env) + (["--until-fail"] if until_fail else [])
    options += [word for pattern in success for word in ("--success", pattern)]
    status, said = ask(["run", "--json", *options, *_behind(command)], quiet=quiet)
    found = json.loads(said)
    kinds = tuple(trial["verdict"]["kind"] for trial in found["trials"])
    return Ran(**_read(Path(found["run"]), status), kinds=kinds)


def watch(pid: int, *, runs: str | os.PathLike[str] | None = None, quiet: bool = False) -> Watched:
    """What the running job around process ``pid`` does; it is not ended. Takes five to ten seconds.

    Raises:
        UsageError: no such process, or no Python process in its tree.
        HarnessError: nobody may look into it, or the machine is in the way.
    """
    return watched(*ask(["watch", "--json", *_options(runs=runs), "--", str(pid)], quiet=quiet))


def watched(status: int, said: str) -> Watched:
    """The result of ``nsa-harness watch --json``."""
    found = json.loads(said)
    verdict = found["verdict"]
    common = _read(Path(found["run"]), status)
    return Watched(**common, kind=verdict["kind"], cause=verdict["cause"] or "", because=verdict["because"])


def ask(words: Sequence[str], *, quiet: bool) -> tuple[int, str]:
    """Exit status and standard output of ``nsa-harness WORDS``; its progress is copied to standard error.

    Raises:
        UsageError, HarnessError: it has no answer; the message is its own.
        KeyboardInterrupt: it was interrupted.
    """
    process = subprocess.Popen(
        command_line(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    last: deque[str] = deque(maxlen=LAST_LINES)
    reader = threading.Thread(target=_copy, args=(process, last), kwargs={"quiet": quiet}, daemon=True)
    reader.start()
    with process:
        try:
            said = process.stdout.read() if process.stdout else ""
            status = process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)  # in a notebook Ctrl-C reaches this process alone
            process.wait()
            raise
        reader.join()
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    if status == USAGE:
        raise UsageError(_as_arguments(last))
    if status == INTERNAL or (status == INFRA and not said.strip()) or status < 0:
        raise HarnessError(_as_arguments(last) or f"nsa-harness ended with status {status}")
    return status, said


def _as_arguments(lines: Iterable[str]) -> str:
    """What the command said, with the name of the argument where it named the option; commands stay as they are."""
    return re.sub(r"(with |harness: |Error: )--runs\b", r"\1runs=", "".join(lines).strip())


def command_line(*words: str) -> list[str]:
    """The command ``nsa-harness WORDS``, run by this interpreter and free of what lies in the present folder."""
    return [sys.executable, "-P", start.__file__, *words]


def _copy(process: subprocess.Popen[str], last: deque[str], *, quiet: bool) -> None:
    for line in process.stderr or ():
        last.append(line)
        if not quiet:
            sys.stderr.write(line)
            sys.stderr.flush()


def _read(folder: Path, status: int) -> dict[str, Any]:
    return _common(json.loads((folder / "report.json").read_text(encoding="utf-8")), folder, status)


def _common(report: Mapping[str, Any], folder: Path, status: int) -> dict[str, Any]:
    said = {name: str(report[name]) for name in ("verdict", "answer", "claim", "place")}
    return {**said, "folder": folder.absolute(), "status": status, "report": report}


def _options(**given: object) -> list[str]:
    pairs = [(f"--{name.replace('_', '-')}", value) for name, value in given.items() if value is not None]
    return [word for name, value in pairs for word in (name, str(value))]


def _seconds(**given: float | None) -> list[str]:
    return [word for name, value in given.items() if value is not None for word in (f"--{name}", f"{value:g}s")]


def _pairs(option: str, given: Mapping[str, object] | None) -> list[str]:
    return [word for name, value in (given or {}).items() for word in (option, f"{name}={value}")]


def _behind(command: Sequence[str]) -> list[str]:
    if isinstance(command, str):
        raise UsageError("command is a list of words, as subprocess takes it: ['python', 'train.py']")
    return ["--", *map(str, command)] if command else []
