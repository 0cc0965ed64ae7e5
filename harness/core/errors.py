"""Every error the harness raises on purpose, with what to do next."""

from __future__ import annotations

from collections.abc import Iterable


class HarnessError(Exception):
    """Base class. The message says what happened and where; ``help`` says what to do next."""

    help = "Run the command again with --help for examples."


class SpecError(HarnessError):
    """A question, matrix file, axis or option that does not make sense as written."""


class CommandError(SpecError):
    """A command line behind ``--`` whose places and values do not fit together."""

    help = "See examples with --help; all of it stands in docs/any-program.md."


class MergeError(SpecError):
    """Runs that are not the shards of one matrix, each once."""

    help = "Name the shards alone: nsa-harness report merge RUN.. See the runs of a folder: nsa-harness report --list"


class NotStartedHereError(SpecError):
    """A job that somebody else started, and that cannot be started here again."""

    help = "Start it with: nsa-harness run -- COMMAND. What fails under that has a command that shows it again."


class NoProgramError(CommandError):
    """A program behind ``--`` that cannot be started on this machine."""

    help = "Nothing was run. Behind -- stands what a shell would start: a name on PATH, or the path of a program."


class FileError(SpecError):
    """A question or matrix file that cannot be read, or does not make sense at the line that it names."""

    help = "Compare it with an example (nsa-harness matrix copy); for a matrix also: nsa-harness matrix schema."


class NoSearchError(SpecError):
    """A search that a matrix file does not have."""

    help = "See its axes, cells and searches with: nsa-harness matrix show FILE"


class ResumeError(SpecError):
    """An option that a run cannot be taken up with."""

    help = "Leave it out, or leave --resume out and begin a new run. --max-trials and --budget may be given anew."


class NotResumableError(SpecError):
    """A run of a command that asks no question, so that nothing of it could be gone on with."""

    help = "Name another run with --resume RUN, or leave --resume out. See them all with: nsa-harness report --list"


class SeveralOpenError(SpecError):
    """A run that is to be gone on with, and that more than one may be."""

    help = "Name the run to go on with: --resume RUN. See them all with: nsa-harness report --list (--runs DIR)"


class NoSecretError(SpecError):
    """A secret that a run's trials were given, and that nothing here still has."""

    help = "Or leave --resume out and begin a new run, with the options of that one."


class UnknownNameError(SpecError):
    """A name that no table holds; the message suggests the nearest one."""


class UnknownSettingError(UnknownNameError):
    """An axis or setting that our trainer does not have."""

    help = "List the axes of our trainer with: nsa-harness bisect --list-axes"


class UnknownFaultError(UnknownNameError):
    """A fault that nothing can plant."""

    help = "List the faults with: nsa-harness bisect --list-faults"


GOES_ON = "a search goes on with --resume"
"""What helps a search that ended before its answer; where ``--runs`` was given, it belongs behind it."""


class StoreError(HarnessError):
    """The run directory cannot be read or written; ``remedy`` is what helps where a place cannot be written to.

    ``what`` is the message without what is safe, where it says that.
    """

    what = ""
    remedy = "Put right what this line names, or choose another place"
    help = f"What was written before is safe. {remedy}; {GOES_ON}."


class FullDiskError(StoreError):
    """A disk without room, or a quota that is used up."""

    remedy = "Free some space or choose another place"
    help = f"What was written before is safe. {remedy}; {GOES_ON}."


class NoWayError(StoreError):
    """A place whose folder is not there and cannot be made."""

    remedy = "Choose a place in a folder that is there"
    help = f"What was written before is safe. {remedy}; {GOES_ON}."


class NotBegunError(StoreError):
    """A new run that could not be written, and of which nothing is left; ``failed`` is why."""

    def __init__(self, failed: StoreError) -> None:
        super().__init__(str(failed))
        self.what = failed.what
        self.help = f"Nothing was begun. {failed.remedy} with --runs, and say it again."


class FailingDiskError(StoreError):
    """A disk that reports an error of its own."""

    help = "What was written before is safe. Copy the run directory elsewhere and --resume the copy."


class NotWritableError(StoreError):
    """A place that may be read and not written to."""

    remedy = "Choose a place that you may write to"
    help = "What was written before is safe. Copy the run's folder to a place that you may write to, and name the copy."


class NoPlaceError(StoreError):
    """Files that are no part of a run, and could not be written where they were to go; ``failed`` is why."""

    def __init__(self, failed: StoreError) -> None:
        super().__init__(str(failed))
        self.help = f"Nothing else was to be done. {failed.remedy}, and say it again."


class NoOutputError(StoreError):
    """A text that was asked for in a file, and could not be written there; ``is_named`` where -o named the file."""

    def __init__(self, failed: StoreError, *, is_named: bool) -> None:
        super().__init__(str(failed))
        instead = "another file with -o, or leave -o out to have it printed" if is_named else "a file elsewhere with -o"
        self.help = f"Nothing else was to be done. Name {instead}."


class NotOursError(StoreError):
    """A file or folder that this program did not make, and that it would have to replace."""

    help = "Name another place (a new or empty folder, or a file with -o), or move what is there, and say it again."


class NoFolderError(StoreError):
    """The current folder is not there any more, or what should be a folder is none."""

    help = "Go to a folder that is there, or name one with --runs, and say it again."


class NoRunError(StoreError):
    """There is no run where one was looked for."""

    help = "See which runs there are with: nsa-harness report --list (--runs DIR looks elsewhere)."


class NoOpenRunError(NoRunError):
    """No unfinished run asks what is to be gone on with."""

    help = "Name the run to go on with (--resume RUN), or leave --resume out and begin a new one."


class NothingToShowError(StoreError):
    """A run without anything that a form of its report could show."""

    help = "See what it has with: nsa-harness report RUN --viewer"


class JournalError(StoreError):
    """A journal that contradicts itself, or was begun by other code or on another machine."""

    help = "Start afresh without --resume, or look at the journal: one JSON object per line."


class DamagedError(JournalError):
    """A journal that is not as it was written."""

    help = "See every line of it, and save what stands, with: nsa-harness fsck RUN (--salvage)"


class DamagedArchiveError(DamagedError):
    """The evidence of a bundle, in an archive that is not as it was written."""

    help = "Make the bundle again from its run (nsa-harness report RUN --bundle DIR), or get it again."


class JournalCutError(JournalError):
    """A journal that became shorter while it was being written."""

    help = "What is left can be read; --resume asks again what is lost."


class NewerError(JournalError):
    """A journal that a newer version wrote."""

    help = "Read it with the nsa-harness that wrote it, or with a newer one."


class RunBusyError(StoreError):
    """Another controller is working in this run directory."""

    help = "Wait for it, or end it by the PID in the message, then --resume."


class LaunchError(HarnessError):
    """A trial could not be started at all."""

    help = "Check this machine with: nsa-harness doctor"


class NoAnswerError(LaunchError):
    """What starts trials does not answer; nothing is known to be wrong with the trial itself."""


class NodesLostError(LaunchError):
    """No node is left to run trials on, and the engine gives no other."""

    help = "What was recorded is safe: go on with --resume and --on once the engine has nodes again."


class SpoiledError(HarnessError):
    """A trial that cannot be watched: what lies in its folder would stop the instrument."""


class CleanupError(HarnessError):
    """A process of a trial could not be ended; later trials would not be trustworthy."""

    help = (
        "In state D they wait for storage or a device, and end by themselves once that answers: thaw or reconnect it "
        f"(cat /proc/PID/task/*/stack, as root, shows the call); else reboot. What was seen is kept; {GOES_ON}."
    )


MOST_LISTED = 30
"""Names that a message lists beside the nearest one."""


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` with the nearest known name, or an empty string when nothing is near."""
    import difflib

    close = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown(
    what: str, name: str, candidates: Iterable[str], *, error: type[UnknownNameError] = UnknownNameError
) -> UnknownNameError:
    """The ``error`` for a name that is in no table: the nearest name, and the list of all while that can be read."""
    names = sorted(candidates)
    return error(f"unknown {what} {name!r}{choices(name, names)}")


def choices(name: str, candidates: Iterable[str]) -> str:
    """``"; did you mean 'x'? Known: x, y."``; of a long list only the nearest, or all when nothing is near."""
    names = list(candidates)
    near = suggestion(name, names)
    if near and len(names) > MOST_LISTED:
        return near
    return f"{near or '.'} Known: {', '.join(names)}."


def raised_at(error: BaseException) -> str:
    """Where ``error`` was raised, and on whose behalf: our own lines, the innermost first."""
    import traceback  # late: only a failure needs it
    from pathlib import Path

    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames if "harness" in frame.filename]
    return " < ".join(lines[:-7:-1])
