"""The program raised, was ended by a signal that we did not send, or exited with an error status."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import OF_A_SIGNAL, conclude, ended_in_words, first_verdict, log_with, place, ranks_of
from harness.classify.messages import GPU_FAULTS, WRITE_FAILED, carried, cause_of, headline, spoken
from harness.classify.rules.exit_abort import exit_abort
from harness.classify.rules.oom import oom
from harness.classify.rules.own_limit import OF_TIMEOUT, own_limit, stood
from harness.classify.rules.passed import early_exit
from harness.classify.signature import (
    error_line,
    fatal_names,
    frame_names,
    line_names,
    own_path,
    raised_names,
    traceback_names,
)
from harness.classify.signs import ended_well
from harness.classify.views import (
    has_failed,
)
from harness.core.outcome import Ending, signal_name
from harness.core.verdict import REFUSED, Confidence, Kind
from harness.reading.frames import own_line, spell
from harness.reading.launchers import root_cause
from harness.reading.printed import (
    FATAL,
    RANK,
    ending_traceback,
    fatal_frames,
    of_its_end,
    raised_at,
    raised_in,
)
from harness.reading.waits import SHELLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.evidence import LogTail, WorkerResult
    from harness.core.verdict import Case, Verdict
    from harness.reading.launchers import RootCause


NOBODY_KNOWN = "; nothing says who sent it: the program, a scheduler, or the kernel for want of memory"
"""What is added to a SIGKILL that is not ours."""

WENT_ON = "; the whole ended with exit status 0 all the same: whoever began that process went on, perhaps on purpose"
"""What is added where a shell goes on after a program that failed: unasked, or behind ``||`` or ``if``."""

SPEAKING = frozenset({signal.SIGABRT, signal.SIGINT})
"""Signals before which a program says why: C++, the C library and assertions abort; Python prints where Ctrl-C met it.
"""

_CHILD_DIED = re.compile(r"terminated with signal|killed by signal|terminated abruptly|exited unexpectedly")
"""What torch and concurrent.futures raise for a process that a signal ended, whose own stack faulthandler may print."""

LATE = (
    "; a GPU tells of its errors at the next call that waits for it, so an earlier line may be at fault: with "
    "CUDA_LAUNCH_BLOCKING=1 in its environment that line is named"
)
"""What is added to an error of a kernel."""

NOT_WRITTEN = "; the file could not be written whole: most often its disk is full, or a quota or limit is reached"
"""What is added where torch.save failed, which does not tell why."""

OF_USAGE = 2
"""The exit status of argparse, optparse and click for a command line that makes no sense."""

_USAGE = re.compile(r"usage: ", re.IGNORECASE)
"""How the line begins that they print before the error."""

_LOG_DIR = re.compile(r"--log[-_]dir[= ](\S+)")
_REDIRECTS = re.compile(r"(?<!\S)(--redirects|-r)[= ]?\S*[23]")
"""Options of torch's launcher: where it puts the output of ranks, and that standard error is not printed as well."""

NEAR = 8
"""Lines of output from the one that gives the cause away, in which torch names the parameter."""


def crashed(case: Case) -> Verdict | None:
    """An exception counts also when the process had to be stopped afterwards: it is what came first."""
    result, outcome = case.evidence.result, case.outcome
    if first_verdict((oom, nonfinite, exit_abort, own_limit), case) is not None:
        return None
    if result is not None and result.status == "raised":
        return _raised(case, result)
    if outcome.exit is None or outcome.ending not in (Ending.EXITED, Ending.SIGNALLED):
        return None
    if outcome.exit.signal is not None:
        return _signalled(case, outcome.exit.signal)
    return _error_status(case, outcome.exit.code) if outcome.exit.code else None


def nonfinite(case: Case) -> Verdict | None:
    """The trainer's own check of the loss raised."""
    result = case.evidence.result
    if result is None or result.status != "raised" or result.bare != "NonFiniteLoss":
        return None
    return conclude(
        case,
        Kind.NONFINITE,
        because=f"{result.message} (after {result.steps_done} of {case.evidence.steps_wanted} steps)",
        cites=(result.id, "exit"),
        confidence=Confidence.PROOF,
        phase=result.phase,
        names=raised_names(result),
    )


def ranks_crashed(case: Case) -> Verdict | None:
    """The launcher's own exit status or signal, where nothing is known of any rank's end."""
    if has_failed(case):
        return None
    verdict = first_verdict((oom, own_limit, crashed, early_exit), case)
    if verdict is None:
        return None
    because = f"the launcher of {ranks_of(case)} ranks: {verdict.because}; no rank says how it ended"
    return replace(verdict, because=because, rank=None)


def _raised(case: Case, result: WorkerResult) -> Verdict:
    bare, message = carried(result)
    cause = cause_of(spoken(result)) or bare
    log = log_with(case, fatal_names) if _CHILD_DIED.search(message) and not case.evidence.ranks else None
    frames = (fatal_frames(log.text) if log else ()) + raised_at(result)
    names = frame_names(frames)
    where = f" in {names[0]}" if names else ""
    goes_on = bool(ended_well(case))
    where_it_was, ids = stood(case) if bare == "TimeoutExpired" else ("", ())
    why = NOT_WRITTEN if cause == WRITE_FAILED else LATE if cause in GPU_FAULTS else ""
    ended = ended_in_words(result.ended_children, of="it") if _CHILD_DIED.search(message) else ""
    more = "".join(f"; {words}" for words in (where_it_was if ids else "", ended) if words)
    then = f"{why}{more}{WENT_ON if goes_on else ''}"
    line = headline(message).rstrip("." if then else "")
    return conclude(
        case,
        Kind.CRASH,
        cause=cause,
        because=f"raised {bare}{where}{_progress(case)}: {line}{then}",
        cites=(result.id, "exit", *((log.id,) if log else ()), *ids),
        confidence=Confidence.MEDIUM if goes_on else Confidence.PROOF,
        phase=result.phase,
        names=names,
        path=own_path(frames),
    )


def _signalled(case: Case, number: int) -> Verdict:
    name = signal_name(number)
    log = log_with(case, fatal_names)
    frames = fatal_frames(log.text) if log else ()
    hint = NOBODY_KNOWN if number == signal.SIGKILL else ""
    if number in SPEAKING:
        log = log or _stderr(case)
        lines = _own_lines(case, of_its_end(log.text.partition(FATAL)[0])) if log else []
        last = _last_line(lines)
        hint = f"; stderr {'says before its stack' if frames else 'ends'}: {last}" if last else ""
        frames = frames or (raised_in(ending_traceback(lines)) if number == signal.SIGINT else ())
        log = log if frames or last else None
    names = frame_names(frames)
    where = f" in {names[0]}" if names else ""
    return conclude(
        case,
        Kind.CRASH,
        cause=name,
        because=f"ended by {name}{where}{_progress(case)}, not sent by us{hint}",
        cites=("exit", "progress", *((log.id,) if log else ())),
        confidence=Confidence.PROOF,
        names=names,
        path=own_path(frames),
    )


def _progress(case: Case) -> str:
    """``, in backward of step 1``; nothing where all that was seen of it is that it printed."""
    last = case.evidence.last
    return "" if last is not None and last.phase == "output" and last.step is None else f", {place(case)}"


def _stderr(case: Case) -> LogTail | None:
    return next((log for log in case.evidence.logs if log.stream == "stderr"), None)


def _last_words(case: Case) -> LogTail | None:
    """The stream that may say why it ended: standard error, or where there is no word in that, standard output."""
    error = _stderr(case)
    if error is not None and _last_line(_own_lines(case, of_its_end(error.text))):
        return error
    return next(
        (log for log in case.evidence.logs if log.stream == "stdout" and _last_line(log.text.splitlines())), error
    )


_PYTHON = re.compile(r"(\S+=\S* +)*(\S*/)?(python[\d.]*|\{python\})( |$)")
"""How the command line of a program begins that is Python and nothing around it."""


def _is_python_alone(case: Case) -> bool:
    """Whether no shell took part: the status is the program's own number."""
    is_python = _PYTHON.match(str(case.trial.config.get("command", ""))) is not None
    return is_python and not any(look.command in SHELLS for look in case.evidence.processes)


def _of_a_shell(case: Case, code: int) -> str:
    """What a status means where a shell or a launcher hands on how its command ended; empty of the program's own."""
    number = code - OF_A_SIGNAL
    if code == OF_TIMEOUT:
        return f"; that is what `timeout` answers when time is up: {stood(case)[0]}"
    if number not in set(signal.Signals) or _is_python_alone(case):
        return ""
    hint = NOBODY_KNOWN if number == signal.SIGKILL else ""
    return f"; that is {OF_A_SIGNAL} + {number}, as a shell says that {signal_name(number)} ended its command{hint}"


def _error_status(case: Case, code: int) -> Verdict:
    log = log_with(case, traceback_names) or _last_words(case)
    own = [RANK.sub("", line) for line in _own_lines(case, of_its_end(log.text))] if log else []
    text = ending_traceback(own)
    line = "" if text else error_line(own)
    names = line_names(line) or traceback_names(text or "\n".join(own))
    cause, because = _refusal(case, code, own, line) or _status(case, code, own, log)
    first = root_cause(case.evidence.output)
    if first is not None:
        because += _of_its_launcher(case, first)
    if not text and (before := raised_in("\n".join(own))):
        because += f" (it stands below a traceback of {spell(own_line(before))}, which may be of something else)"
    return conclude(
        case,
        Kind.CRASH,
        cause=cause,
        because=because,
        cites=("exit", "progress", *((log.id,) if log and own else ())),
        confidence=Confidence.PROOF,
        names=names,
        path=own_path(raised_in(text)),
    )


def _of_its_launcher(case: Case, first: RootCause) -> str:
    """Which rank torch's launcher says failed first, and where its output is if that went into files."""
    how = signal_name(-first.code) if first.code < 0 else f"exit code {first.code}"
    command = str(case.trial.config.get("command", ""))
    folder = _LOG_DIR.search(command)
    where = ""
    if folder is not None and _REDIRECTS.search(command):
        where = f"; its output is in {folder[1]}/*/attempt_*/{first.rank}/stderr.log"
    return f"; torch's launcher says that rank {first.rank} failed first, by {how}{where}"


def _refusal(case: Case, code: int, own: Sequence[str], line: str) -> tuple[str, str] | None:
    """Cause and sentence of a program that did nothing but complain of its command line; None of any other."""
    if code != OF_USAGE or not line or not any(map(_USAGE.match, own)):
        return None
    return REFUSED, f"exit status {code}{_progress(case)}: its command line was refused: {line}"


def _status(case: Case, code: int, own: Sequence[str], log: LogTail | None) -> tuple[str, str]:
    printed = "\n".join(tail.text for tail in case.evidence.logs)
    cause, lines = _first_cause(_own_lines(case, printed.splitlines()))
    last = _last_line(own)
    quote = f"; {log.stream} ends: {last}" if log and last else ""
    quote = f"; it said: {headline(chr(10).join(lines))}" if cause else quote
    status = f"exit status {code}{_progress(case)}, without a result"
    return cause or f"exit-{code}", f"{status}{_of_a_shell(case, code)}{quote}"


def _first_cause(lines: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The first cause that a line names, and that line with those below it."""
    for at, line in enumerate(lines):
        cause = cause_of(line)
        if cause is not None:
            return cause, lines[at : at + NEAR]
    return None, ()


def _own_lines(case: Case, lines: Iterable[str]) -> list[str]:
    """Those of ``lines`` of output, without those that torch marks as another rank's (``[rank1]: ...``)."""
    last = case.evidence.last
    own = f"[rank{last.rank if last else 0}]:"
    return [line for line in lines if not RANK.match(line) or line.startswith(own)]


def _last_line(lines: Sequence[str]) -> str:
    """The last of them that has a word in it; rules and marks say nothing."""
    for line in reversed(lines):
        if re.search(r"\w", line):
            return line.strip()[:200]
    return ""
