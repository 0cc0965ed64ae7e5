"""nsa-harness recorder: a folder of flight-recorder dumps, of any job: where its ranks part, and at whose fault."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.exit_codes import ExitCode
from harness.cli.fitting import say
from harness.cli.options import JSON
from harness.core.errors import SpecError

if TYPE_CHECKING:
    from harness.core.devices import CollectiveState
    from harness.reading.desync import Divergence

EPILOG = """\b
Examples:
  nsa-harness recorder /tmp/traces   where the job's dumps are
  nsa-harness recorder dumps --json | jq -r '.partings[0].said'
\b
Exit codes:
  0    the ranks of every dump are together, and nothing is pending
  1    ranks parted: one made another call, or never came to one
  2    wrong use: no folder, or no dump in it
  3    inconclusive: a rank's dump is missing, or all wait in the same call
"""

_RANK = (re.compile(r"rank[_-]?(\d+)", re.IGNORECASE), re.compile(r"(\d+)(?=\D*$)"))
"""How file names tell a rank: ``nccl_trace_rank_3``, ``node7-rank12.json``; else their last number."""

LIMITS = "dumps do not tell whether it hangs elsewhere, is slow, or has ended; nsa-harness watch PID can, while it runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The dumps of a folder, one a rank, and for each file that is none why not."""

    states: tuple[CollectiveState, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def ranks(self) -> list[int]:
        """The ranks that left one."""
        return [state.rank for state in self.states]

    @property
    def unheard(self) -> tuple[int, ...]:
        """Ranks of its process groups that have no dump."""
        members: set[int] = set()
        for state in self.states:
            for _, ranks in state.groups:
                members.update(ranks)
        return tuple(sorted(members.difference(self.ranks)))


@click.command(epilog=EPILOG)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@JSON
@click.pass_context
def recorder(ctx: click.Context, *, folder: Path, as_json: bool) -> None:
    """Say from the dumps in FOLDER in which operation the ranks part, and which rank did otherwise or never came.

    A dump is what torch's flight recorder writes, as pickle or JSON, of NCCL, gloo or another backend; the file's name
    ends with the rank. Nothing in it is run: a pickle that holds more than plain data is not loaded. Neither torch nor
    the job is needed.
    """
    from harness.reading.desync import crossed, partings

    dumps = read(folder)
    for name, why in dumps.left_out:
        click.echo(f"not read: {name}: {why}", err=True)
    if not dumps.states:
        raise SpecError(
            f"no dump of a flight recorder in {folder}; set TORCH_FR_BUFFER_SIZE=2000 in the job to get some"
        )
    divergences, circle = partings(dumps.states), crossed(dumps.states)
    if as_json:
        click.echo(json.dumps(_facts(dumps, divergences, circle), indent=1))
    else:
        say("\n".join(_text(dumps, divergences, circle)))
    ctx.exit(exit_code(dumps, divergences, circle))


def read(folder: Path) -> Folder:
    """Every dump in ``folder``; of several of one rank the one that was written last."""
    states: dict[int, CollectiveState] = {}
    left_out: list[tuple[str, str]] = []
    files = filter(Path.is_file, folder.iterdir())
    for path in sorted(files, key=lambda file: (file.stat().st_mtime_ns, file.name)):
        try:
            state = _state(path)
        except (OSError, ValueError) as error:
            left_out.append((path.name, str(error)))
            continue
        if state.rank in states:
            left_out.append((states[state.rank].source, f"{path.name} is a later dump of rank {state.rank}"))
        states[state.rank] = state
    return Folder(states=tuple(states[rank] for rank in sorted(states)), left_out=tuple(left_out))


def _state(path: Path) -> CollectiveState:
    """One dump; ValueError where it is none, with the reason."""
    from harness.observe.devices.parse_recorder import parse_recorder

    rank = rank_of(path.name)
    if rank is None:
        raise ValueError("its name has no rank")
    state = parse_recorder(path.read_bytes(), t_s=0.0, rank=rank, source=path.name)
    if not state.collectives and not state.groups:
        raise ValueError("it holds no operation and no process group")
    return state


def rank_of(name: str) -> int | None:
    """The rank that a file's name tells; None when it has no number."""
    stem = re.sub(r"\.(pkl|pickle|json|bin|dump)$", "", name)
    for pattern in _RANK:
        if match := pattern.search(stem):
            return int(match[1])
    return None


def sentence(divergence: Divergence) -> str:
    """What one parting means, in a sentence that claims no more than the dumps show."""
    from harness.classify.views import names
    from harness.reading.desync import Parting, in_words, operation_of

    calls = [(rank, call) for rank, call in divergence.calls if call is not None]
    number = operation_of(divergence)
    if divergence.parting in (Parting.OPERATION, Parting.SHAPE):
        each = "; ".join(f"rank {rank} called {in_words(call)}" for rank, call in calls)
        how = "which is not what followed these operations before" if divergence.by_habit else "unlike most"
        which = "nothing shows whose call is the wrong one"
        if divergence.odd:
            which = f"{names(divergence.odd)} did otherwise, {how}"
        what = "operation" if divergence.parting is Parting.OPERATION else "shape or type"
        return f"as {number} the ranks made calls of different {what}: {each}; {which}"
    there = f"{names([rank for rank, _ in calls])} called {in_words(calls[0][1])} as {number}, and it is not over"
    if divergence.parting is Parting.TOGETHER:
        return f"{there}: all of them are in it, so none of them is at fault by its calls; look at device and network"
    never = _at_fault(divergence)
    parts = [there]
    if never:
        parts.append(f"{names(never)} had not called it; {LIMITS}")
        if divergence.mutual:
            how = "did not call what followed these operations before"
            which = f"{names(never)} {how}" if divergence.by_habit else "nothing shows whose call is the wrong one"
            parts.append(f"they wait in an operation of another group that the others had not called; {which}")
    if divergence.unheard:
        parts.append(f"there is no dump of {names(divergence.unheard)}, so whether it was called there is not known")
    return "; ".join(parts)


def exit_code(dumps: Folder, divergences: tuple[Divergence, ...], circle: str) -> ExitCode:
    """What it means to a script."""
    if circle or any(map(_is_finding, divergences)):
        return ExitCode.FINDINGS
    return ExitCode.BUDGET if divergences or dumps.unheard else ExitCode.OK


def _is_finding(one: Divergence) -> bool:
    """Whether a rank did otherwise, or one that was heard of is not together with the others."""
    from harness.reading.desync import Parting

    if one.parting in (Parting.OPERATION, Parting.SHAPE):
        return True
    return one.parting is not Parting.TOGETHER and bool(_at_fault(one))


def _at_fault(one: Divergence) -> list[int]:
    """The ranks that did otherwise or never came, and were heard of."""
    return [rank for rank in one.odd if rank not in one.unheard]


def _text(dumps: Folder, divergences: tuple[Divergence, ...], circle: str) -> list[str]:
    from harness.classify.views import names

    backends = ", ".join(sorted({state.backend for state in dumps.states if state.backend})) or "unknown backend"
    lines = [f"dumps of {names(dumps.ranks)} ({backends})"]
    if circle:
        lines.append(f"the operations of two process groups wait for each other: {circle}")
    lines += map(sentence, divergences)
    if not divergences and not circle:
        lines.append("these ranks are together: all that was kept is alike, and nothing is pending")
        if dumps.unheard:
            lines.append(f"there is no dump of {names(dumps.unheard)}")
    return lines


def _facts(dumps: Folder, divergences: tuple[Divergence, ...], circle: str) -> dict[str, object]:
    return {
        "ranks": dumps.ranks,
        "left_out": dict(dumps.left_out),
        "no_dump": list(dumps.unheard),
        "crossed": circle,
        "partings": list(map(_parting_facts, divergences)),
    }


def _parting_facts(one: Divergence) -> dict[str, object]:
    return {
        "kind": one.parting.value,
        "group": one.group,
        "operation": one.seq,
        "at_fault": _at_fault(one),
        "no_dump": list(one.unheard),
        "said": sentence(one),
    }
