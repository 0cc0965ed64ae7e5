"""Merge: the runs of a matrix's shards as one run, as if nobody had cut it. Runs nothing.

A shard that left no run is a part of the question that nothing answers: its cells are asked for, and are not run. So is
all of a matrix of which no job left a run, where it is known which matrix there should be.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from harness.campaign import Campaign
from harness.core.campaign import LostShard, Override, ShardProgram, Task
from harness.core.errors import MergeError, NoRunError
from harness.report.tried import verdict_counts
from harness.search.cells import planned_cells
from harness.spec.matrix_axes import chosen_cells, parse_shard, shard_of
from harness.store import layout
from harness.store.files import link_files
from harness.store.history import History
from harness.store.run_store import RunStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set
    from pathlib import Path

    from harness.conduct import Parts
    from harness.core.campaign import CampaignSpec
    from harness.core.invocation import Invocation
    from harness.core.point import Point
    from harness.core.ports import Clock, Screen
    from harness.core.record import Run, TrialRecord


def shards_at(places: Iterable[Path], *, or_none: bool = False) -> list[list[History]]:
    """The runs at or below ``places``, those that ask the same of other cells together, in the order of their names.

    A run that was merged before is left out where it lies beside its shards in a folder. A run that is there twice, by
    two names or as a copy, counts once.

    Raises:
        NoRunError: there is none in one of them, and not ``or_none``.
        MergeError: one is no run of cells, so that nothing could have been cut.
    """
    groups: list[list[History]] = []
    named: set[Path] = set()
    there: set[str] = set()
    for place in places:
        folders = _runs_at(place)
        if not folders and not or_none:
            raise NoRunError(f"no run at or below {place}")
        named.update({place}.intersection(folders))
        for history in map(History.read, folders):
            if history.question.task is not Task.CELLS:
                raise MergeError(f"{history.run_dir} is no run of cells; only shards of a matrix can be merged")
            if history.identity.id + history.identity.started_at in there:
                continue
            there.add(history.identity.id + history.identity.started_at)
            question = _uncut(history.asked)
            for group in groups:
                if _uncut(group[0].asked) == question:
                    group.append(history)
                    break
            else:
                groups.append([history])
    return [_unmerged(group, named) for group in groups]


def _uncut(spec: CampaignSpec) -> CampaignSpec:
    """What ``spec`` asks, without the cells of which it does, and without what it may spend."""
    effort = replace(spec.matrix.effort, max_trials=0, max_seconds=None)
    return replace(spec, cells=(), lost=(), matrix=replace(spec.matrix, effort=effort))


def is_asked_in(groups: Iterable[Sequence[History]], spec: CampaignSpec) -> bool:
    """Whether any of these runs is of the file of ``spec``, or asks the same from another place."""
    for asked in (history.asked for group in groups for history in group):
        if spec.file == asked.file or _uncut(replace(asked, file=spec.file)) == _uncut(spec):
            return True
    return False


def _runs_at(place: Path) -> list[Path]:
    """The run that ``place`` is, or every run below it."""
    if layout.journal(place).is_file():
        return [place]
    return sorted(path.parent for path in place.rglob("journal.jsonl"))


def _unmerged(group: Sequence[History], named: Set[Path]) -> list[History]:
    """``group`` without runs that only hold what its shards recorded; those that were ``named`` are somebody's wish."""
    recorded: set[tuple[str, str]] = set()
    for history in group:
        if _shard_of(history):
            recorded |= _recorded(history)
    remaining: list[History] = []
    for history in group:
        is_wanted = bool(_shard_of(history)) or history.run_dir in named
        if is_wanted or not recorded or _recorded(history) - recorded:
            remaining.append(history)
    return remaining


def _shard_of(history: History) -> str:
    """Its ``K/N``; empty for a run that nobody cut, or that was merged."""
    invocation = history.identity.invocation
    return "".join(invocation.values_of("--shard")[-1:]) if invocation else ""


def _recorded(history: History) -> set[tuple[str, str]]:
    """Its trials, and when each was begun: the same trial run twice is not the same."""
    return {(record.trial.key, record.started_at) for record in (*history.records(), *history.reused())}


def merge(shards: Sequence[History], *, runs: Path, parts: Parts, screen: Screen, clock: Clock) -> Run:
    """A new run in ``runs`` that has every trial of ``shards``, in the order of one run, and what they show together.

    Of a shard that was run more than once its last run counts, or the last one that came to its end.

    Raises:
        MergeError: a cell was run by two of them that are not the same shard.
        StoreError: it cannot be written.
    """
    shards, notes = _each_once(shards)
    first = max(shards, key=lambda shard: shard.question.matrix.effort.max_trials)
    lost = lost_shards(shards)
    asked = _asked(shards)
    for part in lost:
        asked.update(part.cells)
    cells = _in_order(first.question, asked)
    records = _in_one_row(shards, cells)
    programs = _programs(shards)
    whole = first.identity.invocation
    if whole is not None:  # the command of a shard, without what made it one
        whole = whole.without("--shard").without("--gpus").without("--runs")
    with RunStore.create(
        runs,
        spec=replace(first.question, cells=cells, lost=lost),
        machine=first.identity.machine,
        code=first.identity.code,
        argv=first.identity.argv,
        invocation=whole,
        program=first.identity.program if not programs else "",
        programs=programs,
        clock=clock,
    ) as store:
        for shard, record in records:
            link_files(shard.trial_dir(record.trial.key), layout.trial(store.run_dir, record.trial.key))
            store.add_record(record, proof=shard.proofs.get(record.trial.key))
        for shard in shards:
            for fact in shard.facts():
                if isinstance(fact, Override):
                    store.add_override(fact)
        for note in (*notes, *_notes(shards)):
            store.add_note(note)
        seconds = sum(shard.run().seconds for shard in shards)
        return Campaign(store=store, parts=parts, screen=screen).settle(seconds=seconds)


def _in_order(spec: CampaignSpec, cells: set[Point]) -> tuple[Point, ...]:
    """``cells`` as one run would have had them: planned ones first, in the plan's order."""
    planned = [cell for cell in planned_cells(spec.matrix) if cell in cells]
    extra = sorted(cells - set(planned), key=spec.matrix.space.name_of)
    return (*extra, *planned)


def _in_one_row(shards: Sequence[History], cells: Sequence[Point]) -> list[tuple[History, TrialRecord]]:
    place = {cell: number for number, cell in enumerate(cells)}
    rows: dict[str, tuple[History, TrialRecord]] = {}
    for shard in shards:
        for record in (*shard.records(), *shard.reused()):
            other, _ = rows.setdefault(record.trial.key, (shard, record))
            if other is not shard:
                cell = shard.question.matrix.space.name_of(record.trial.point)
                raise MergeError(f"{other.run_dir} and {shard.run_dir} both ran {cell}, and are not the same shard")
    return sorted(rows.values(), key=lambda row: (row[1].trial.repeat, place[row[1].trial.point]))


def _each_once(shards: Sequence[History]) -> tuple[list[History], list[str]]:
    """``shards`` with one run of each, and what to say of those that do not count."""
    runs: dict[tuple[object, str], list[History]] = {}
    for shard in shards:
        whole = _cut_of(shard)
        runs.setdefault((whole and _choice(whole), _shard_of(shard) or shard.identity.id), []).append(shard)
    once: list[History] = []
    notes: list[str] = []
    for (_, name), same in runs.items():
        *others, last = sorted(same, key=lambda shard: (shard.run().is_whole, shard.identity.started_at))
        once.append(last)
        for other in others:
            ended = verdict_counts(other.records()) or "no trial"
            notes.append(
                f"shard {name} was run more than once: {last.identity.id} counts, not {other.run_dir} ({ended})"
            )
    return once, notes


_CHOOSING = frozenset({"--cell", "--only", "--gpus"})
"""Options that choose the cells of which a shard is a part."""


@dataclass(slots=True, kw_only=True)
class _Cut:
    """Cells that were cut into ``of`` shards: the command that would run all of them, and the shards that are there."""

    whole: Invocation
    of: int
    present: set[int] = field(default_factory=set[int])

    @property
    def gpus(self) -> int | None:
        """The number of GPUs that all of its cells have, where that was asked for."""
        values = self.whole.values_of("--gpus")
        return int(values[-1]) if values else None


def _choice(whole: Invocation) -> tuple[tuple[str, str | None], ...]:
    """The options that choose the cells of which ``whole`` runs all."""
    return tuple(pair for pair in whole.options if pair[0] in _CHOOSING)


def _cut_of(shard: History) -> Invocation | None:
    """The command that would run all of the cells that it is a part of; None where it is no part."""
    invocation = shard.identity.invocation
    if invocation is None or not _shard_of(shard):
        return None
    return invocation.without("--shard").without("--runs")


def lost_shards(shards: Sequence[History]) -> tuple[LostShard, ...]:
    """The shards that were planned beside ``shards`` and are not among them, with their cells that no other one has.

    So are those that an earlier merge among ``shards`` missed. Where all are cut by their GPUs, as ``matrix emit``
    cuts, the cells with other numbers of GPUs were planned, too.
    """
    matrix = shards[0].question.matrix
    planned = planned_cells(matrix)
    cuts = _cuts(shards)
    lost: list[LostShard] = [part for shard in shards for part in shard.question.lost]
    for cut in cuts:
        only, by_name = cut.whole.values_of("--only"), cut.whole.values_of("--cell")
        cells = chosen_cells(matrix, planned, cells=by_name, only=only, gpus=cut.gpus)
        choice = " ".join(f"{name} {value}" for name, value in _choice(cut.whole))
        which = "" if set(cells) == set(planned) else f" ({choice})"
        for number in sorted(set(range(1, cut.of + 1)) - cut.present):
            name, command = f"shard {number}/{cut.of}{which}", cut.whole.having("--shard", f"{number}/{cut.of}")
            lost.append(LostShard(name=name, cells=shard_of(cells, number, cut.of), invocation=command))
    if all(map(_shard_of, shards)) and all(len(_choice(cut.whole)) == 1 and cut.gpus is not None for cut in cuts):
        for gpus in sorted(set(map(matrix.gpus_at, planned)) - {cut.gpus for cut in cuts}):
            cells = tuple(cell for cell in planned if matrix.gpus_at(cell) == gpus)
            command = cuts[0].whole.having("--gpus", str(gpus))
            lost.append(LostShard(name=f"every shard (--gpus {gpus})", cells=cells, invocation=command))
    asked, missed = _asked(shards), list[LostShard]()
    for part in lost:
        cells = tuple(cell for cell in part.cells if cell not in asked)
        asked.update(cells)
        missed += [replace(part, cells=cells)] if cells else []
    return tuple(missed)


def _programs(shards: Sequence[History]) -> tuple[ShardProgram, ...]:
    """What each shard ran, where they did not all run the same: the commit of a program, of our trainer its code."""
    programs: list[ShardProgram] = []
    for shard in shards:
        identity = shard.identity
        number = _shard_of(shard)
        own = ShardProgram(
            name=f"shard {number}" if number else identity.id,
            program=identity.program if shard.question.matrix.target != "nsa" else identity.code.partition(" (")[0],
            cells=tuple(dict.fromkeys(record.trial.point for record in shard.records())),
            invocation=identity.invocation,
        )
        programs += identity.programs or (own,)
    return tuple(programs) if len({one.program for one in programs}) > 1 else ()


def _asked(shards: Sequence[History]) -> set[Point]:
    """The cells that were to be run in ``shards``; what an earlier merge of them had lost was not."""
    asked: set[Point] = set()
    for shard in shards:
        lost = {cell for part in shard.question.lost for cell in part.cells}
        asked.update(cell for cell in shard.question.cells if cell not in lost)
        asked.update(record.trial.point for record in shard.records())
    return asked


def _cuts(shards: Sequence[History]) -> list[_Cut]:
    """How the cells were cut, by what chooses them and into how many shards."""
    cuts: dict[tuple[object, int], _Cut] = {}
    for shard in shards:
        whole = _cut_of(shard)
        if whole is not None:
            number, of = parse_shard(_shard_of(shard))
            cut = _Cut(whole=whole, of=of)
            cuts.setdefault((_choice(whole), of), cut).present.add(number)
    return list(cuts.values())


def _notes(shards: Sequence[History]) -> list[str]:
    machines: set[str] = set()
    several: dict[str, None] = {}
    for shard in shards:
        machines.add(shard.identity.machine.fingerprint)
        several.update(dict.fromkeys(shard.run().notes))
    notes = list(several)
    if len(machines) > 1:
        notes.append(f"its shards ran on {len(machines)} kinds of machines: times are not comparable between them")
    return notes
