"""Merge: the runs of a matrix's shards as one run, as if nobody had cut it. Runs nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.campaign import Campaign
from harness.core.campaign import Override, Task
from harness.core.errors import NoRunError, SpecError
from harness.search.cells import planned_cells
from harness.store import layout
from harness.store.files import link_files
from harness.store.history import History
from harness.store.run_store import RunStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set
    from pathlib import Path

    from harness.conduct import Parts
    from harness.core.campaign import CampaignSpec
    from harness.core.point import Point
    from harness.core.ports import Clock, Screen
    from harness.core.record import Run, TrialRecord


def shards_at(places: Iterable[Path]) -> list[list[History]]:
    """The runs at or below ``places``, those that ask the same of other cells together, in the order of their names.

    A run that was merged before is left out where it lies beside its shards in a folder.

    Raises:
        NoRunError: there is none.
        SpecError: one is no run of cells, so that nothing could have been cut.
    """
    groups: list[list[History]] = []
    named: set[Path] = set()
    for place in places:
        folders = _runs_at(place)
        named.update({place}.intersection(folders))
        for history in map(History.read, folders):
            spec = history.question
            if spec.task is not Task.CELLS:
                raise SpecError(f"{history.run_dir} is no run of cells; only shards of a matrix can be merged")
            question = replace(history.asked, cells=())
            for group in groups:
                if replace(group[0].asked, cells=()) == question:
                    group.append(history)
                    break
            else:
                groups.append([history])
    return [_unmerged(group, named) for group in groups]


def _runs_at(place: Path) -> list[Path]:
    """The run that ``place`` is, or every run below it."""
    if layout.journal(place).is_file():
        return [place]
    folders = sorted(path.parent for path in place.rglob("journal.jsonl"))
    if not folders:
        raise NoRunError(f"no run at or below {place}")
    return folders


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
    return dict(invocation.options if invocation else ()).get("--shard") or ""


def _recorded(history: History) -> set[tuple[str, str]]:
    """Its trials, and when each was begun: the same trial run twice is not the same."""
    return {(record.trial.key, record.started_at) for record in (*history.records(), *history.reused())}


def merge(shards: Sequence[History], *, runs: Path, parts: Parts, screen: Screen, clock: Clock) -> Run:
    """A new run in ``runs`` that has every trial of ``shards``, in the order of one run, and what they show together.

    Raises:
        SpecError: a trial is in two of them.
        StoreError: it cannot be written.
    """
    first = shards[0]
    asked: set[Point] = set()
    for shard in shards:
        asked.update(shard.question.cells)
    lost = _of_lost_shards(shards)
    absent = [f"shard {name} is missing: nothing is known of its cells" for name in missing(shards)]
    cells = _in_order(first.question, asked | lost)
    records = _in_one_row(shards, cells)
    whole = first.identity.invocation
    if whole is not None:  # the command of a shard, without what made it one
        whole = whole.without("--shard").without("--gpus").without("--runs")
    with RunStore.create(
        runs,
        spec=replace(first.question, cells=cells),
        machine=first.identity.machine,
        code=first.identity.code,
        argv=first.identity.argv,
        invocation=whole,
        clock=clock,
    ) as store:
        for shard, record in records:
            link_files(shard.trial_dir(record.trial.key), layout.trial(store.run_dir, record.trial.key))
            store.add_record(record, proof=shard.proofs.get(record.trial.key))
        for shard in shards:
            for fact in shard.facts():
                if isinstance(fact, Override):
                    store.add_override(fact)
        for note in (*_notes(shards), *([] if lost else absent)):
            store.add_note(note)
        seconds = sum(shard.run().seconds for shard in shards)
        # Lost cells that are known can be run by --resume, and then the note on them holds no more.
        return Campaign(store=store, parts=parts, screen=screen).settle(seconds=seconds, notes=absent if lost else ())


def _in_order(spec: CampaignSpec, cells: set[Point]) -> tuple[Point, ...]:
    """``cells`` as one run would have had them: planned ones first, in the plan's order."""
    planned = [cell for cell in planned_cells(spec.matrix) if cell in cells]
    extra = sorted(cells - set(planned), key=spec.matrix.space.name_of)
    return (*extra, *planned)


_CHOOSES = frozenset({"--only", "--cell", "--gpus", "--tag"})
"""Options that ask for some cells alone: without the shard that is missing, nobody knows which of them it had."""


def _of_lost_shards(shards: Sequence[History]) -> set[Point]:
    """The cells of shards that are missing: they were asked for, and are not run. None where some were chosen."""
    for shard in shards:
        invocation = shard.identity.invocation
        if invocation is None or not _CHOOSES.isdisjoint(dict(invocation.options)):
            return set()
    return set(planned_cells(shards[0].question.matrix)) if missing(shards) else set()


def _in_one_row(shards: Sequence[History], cells: Sequence[Point]) -> list[tuple[History, TrialRecord]]:
    place = {cell: number for number, cell in enumerate(cells)}
    rows: dict[str, tuple[History, TrialRecord]] = {}
    for shard in shards:
        for record in (*shard.records(), *shard.reused()):
            other, _ = rows.setdefault(record.trial.key, (shard, record))
            if other is not shard:
                raise SpecError(f"{other.run_dir} and {shard.run_dir} have the same trial; leave one of them out")
    return sorted(rows.values(), key=lambda row: (row[1].trial.repeat, place[row[1].trial.point]))


def missing(shards: Sequence[History]) -> list[str]:
    """The shards that should be among ``shards`` and are not, as ``2/3``, with the GPUs that they were cut by."""
    by_cut: dict[tuple[str, str], set[int]] = {}
    for shard in shards:
        options = dict(shard.identity.invocation.options if shard.identity.invocation else ())
        number, _, of = (_shard_of(shard) or "1/1").partition("/")
        by_cut.setdefault((of, options.get("--gpus") or ""), set()).add(int(number))
    lost: list[str] = []
    for (of, gpus), numbers in by_cut.items():
        those = f" of the cells with {gpus} GPUs" if gpus else ""
        absent = sorted(set(range(1, int(of) + 1)) - numbers)
        lost += [f"{number}/{of}{those}" for number in absent]
    return lost


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
