"""Collectives of several ranks side by side: the first operation in which they are not together, and who is not."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from harness.core.devices import Collective, CollectiveState
    from harness.core.evidence import Evidence

UNEVEN = ("all_to_all", "alltoall", "gather", "scatter", "send", "recv")
"""Operations in which ranks may give tensors of different sizes. all_gather and reduce_scatter are not among them."""

EVEN = ("all_gather", "allgather", "reduce_scatter")

_PAIR = re.compile(r"(?P<verb>send|recv) (?P<own>\d+)(?:->|<-)(?P<other>\d+)")
"""The recorder's name of a call for one other rank, ``recv 0<-1``: both are numbered within the group."""

CONTEXT = 3
"""Operations before the divergence that must be alike to say what used to follow them."""


class Parting(StrEnum):
    """In what way the ranks are not together."""

    MISSING = "missing rank"
    OPERATION = "other operation"
    SHAPE = "other shape"
    TOGETHER = "all joined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first operation of a group in which its ranks are not together, or the first for one other rank.

    ``calls`` gives each rank's operation at this number, None for a rank that never got there. ``odd`` are the ranks
    at fault: those that never came, or that did other than most, or (of two) other than what used to follow;
    ``by_habit`` says that it was the last of these. ``unheard`` are ranks of the group whose recorder did not answer.
    ``Parting.TOGETHER``: every rank handed over the same operation, and it is not over. ``mutual``: those that never
    came wait in another operation, to which the others never came, so that either may have gone wrong.
    ``behind``: the send or recv in which the missing rank waits before the call that completes this one.
    """

    parting: Parting
    group: str
    seq: int
    calls: tuple[tuple[int, Collective | None], ...]
    odd: tuple[int, ...] = ()
    by_habit: bool = False
    unheard: tuple[int, ...] = ()
    mutual: bool = False
    behind: Collective | None = None

    @property
    def called(self) -> frozenset[int]:
        """The ranks that made the call."""
        return frozenset(rank for rank, call in self.calls if call is not None)


def of_this_silence(evidence: Evidence) -> tuple[CollectiveState, ...]:
    """What the recorders said since their ranks' last marks: an operation that was open before may be over by now."""
    marked_s = {facts.rank: facts.last.t_s for facts in evidence.ranks if facts.last is not None}
    return tuple(state for state in evidence.collectives if state.t_s >= marked_s.get(state.rank, 0.0))


def partings(states: Sequence[CollectiveState], *, world: int = 0) -> tuple[Divergence, ...]:
    """Where the ranks first part in every group in which they do, the most telling first.

    ``world`` is the number of ranks, for recorders that do not name a group's ranks. Of several dumps of a rank the
    last counts. A difference comes before a missing rank, and that before an operation which all joined.
    """
    latest = {state.rank: state for state in states}
    by_group: dict[str, Divergence | None] = {}
    for state in latest.values():
        for op in state.collectives:
            if op.group not in by_group:
                by_group[op.group] = _in_group(latest, group=op.group, world=world)
    among = [*filter(None, by_group.values()), *_unpaired(latest)]
    weight = {Parting.OPERATION: 0, Parting.SHAPE: 0, Parting.MISSING: 1, Parting.TOGETHER: 2}
    divergences = [_among(divergence, among, latest) for divergence in among]
    return tuple(sorted(divergences, key=lambda d: (weight[d.parting], d.mutual and not d.by_habit)))


def _unpaired(latest: Mapping[int, CollectiveState]) -> list[Divergence]:
    """Of each rank the first send or recv that is not over, where the other rank has nothing begun to complete it.

    Two that wait for each other so, one of which has called what the other waits for, though behind its own wait, are
    one divergence: its calls are in the wrong order.
    """
    divergences: dict[tuple[int, int], Divergence] = {}
    for rank, state in latest.items():
        call = next((op for op in state.pending if op.p2p), None)
        pair = None if call is None else _PAIR.fullmatch(call.op)
        if call is None or pair is None:
            continue
        peer, wanted = _other_side(pair, dict(state.groups).get(call.group, ()))
        if peer not in latest:
            continue
        theirs = [op for op in latest[peer].pending if op.p2p]
        answers = [op for op in theirs if (op.group, op.op) == (call.group, wanted)]
        if answers and (theirs[0] is answers[0] or answers[0].state == "started"):
            continue
        calls = tuple(sorted({rank: call, peer: None}.items()))
        at = Divergence(parting=Parting.MISSING, group=call.group, seq=call.seq, calls=calls, odd=(peer,))
        divergences[rank, peer] = replace(at, behind=theirs[0]) if answers else at
    crossed_over = {(peer, rank) for (rank, peer), one in divergences.items() if one.behind is not None}
    return [one for pair, one in divergences.items() if pair not in crossed_over]


def _other_side(pair: re.Match[str], members: Sequence[int]) -> tuple[int, str]:
    """The rank, among the group's ``members``, that a send or recv is for, and the name of the call that answers it."""
    number = int(pair["other"])
    verb, arrow = ("recv", "<-") if pair["verb"] == "send" else ("send", "->")
    return members[number] if number < len(members) else number, f"{verb} {pair['other']}{arrow}{pair['own']}"


def _among(one: Divergence, others: Iterable[Divergence], latest: Mapping[int, CollectiveState]) -> Divergence:
    """A divergence beside those of the other groups: whether the missing wait in one of them for those who came here.

    Then it is asked who did something else than what used to follow, over all groups: who skips a call waits in the
    next one, to which the others never come, and each of the two groups misses somebody else.
    """
    if one.parting is not Parting.MISSING or one.unheard:
        return one
    for other in others:
        if other.parting is not Parting.MISSING or other is one:
            continue
        if one.called == frozenset(other.odd) and other.called == frozenset(one.odd):
            breaks = {_is_as_before(latest[rank].collectives, dict(other.calls)[rank]) for rank in one.odd} == {False}
            keeps = {_is_as_before(latest[rank].collectives, dict(one.calls)[rank]) for rank in one.called} == {True}
            return replace(one, mutual=True, by_habit=breaks and keeps)
    return one


def _is_as_before(ops: Sequence[Collective], call: Collective | None) -> bool | None:
    """Whether a rank's call is what followed the same calls, of all groups, the last time; None without such a time."""
    numbered = dict(enumerate(ops))
    here = next((number for number, op in numbered.items() if op is call), None)
    if here is None:
        return None
    before = _habit(numbered, seq=here, kind=_call)
    return None if before is None else before == _call(numbered[here])


def crossed(states: Sequence[CollectiveState]) -> str:
    """The two groups whose operations wait for each other, in words; empty when no two do.

    On one rank's device the operation of the first group has begun and that of the second waits behind it, on another
    rank's device it is the other way round: kernels run in the order in which they were handed over, so neither ends.
    """
    open_: dict[int, dict[str, str]] = {}
    for state in states:
        for op in state.pending:
            open_.setdefault(state.rank, {}).setdefault(op.group, op.state)
    begun: dict[tuple[str, str], int] = {}
    """By the group that has begun and the one that waits behind it: a rank of which that is so."""
    for rank, mine in open_.items():
        first = [group for group, state in mine.items() if state == "started"]
        second = [group for group, state in mine.items() if state == "scheduled"]
        for here, behind in product(first, second):
            begun.setdefault((here, behind), rank)
            if (behind, here) in begun:
                return (
                    f"rank {begun[behind, here]} has begun the operation of group {behind} and rank {rank} that of "
                    f"group {here}, each in front of the one that the other waits in"
                )
    return ""


def in_words(call: Collective) -> str:
    """``all_reduce of 1000 Float at train.py:12``."""
    shapes = ", ".join("x".join(map(str, size)) or "a scalar" for size in call.sizes)
    kinds = "/".join(dict.fromkeys(call.dtypes))
    where = f" at {call.where}" if call.where else ""
    return f"{call.op} of {shapes} {kinds}{where}"


def operation_of(divergence: Divergence) -> str:
    """``operation 7 of process group 0``."""
    group = f"process group {divergence.group}" if divergence.group else "the process group"
    return f"operation {divergence.seq} of {group}"


def _in_group(latest: Mapping[int, CollectiveState], *, group: str, world: int) -> Divergence | None:
    members = _members(latest, group=group, world=world)
    calls: dict[int, dict[int, Collective]] = {}
    for rank, state in latest.items():
        if rank in members:
            calls[rank] = {op.seq: op for op in state.collectives if op.group == group and not op.p2p}
    unheard = tuple(sorted(members - calls.keys()))

    def parted(
        parting: Parting, at: Mapping[int, Collective | None], odd: tuple[int, ...] = (), *, by_habit: bool = False
    ) -> Divergence:
        return Divergence(
            parting=parting,
            group=group,
            seq=seq,
            calls=tuple(sorted(at.items())),
            odd=odd,
            by_habit=by_habit,
            unheard=() if parting is Parting.TOGETHER else unheard,
        )

    for seq in sorted(set[int]().union(*calls.values())):
        at = _at(calls, seq=seq)
        present = {rank: op for rank, op in at.items() if op is not None}
        parting = _parting(tuple(present.values()))
        if parting is not None:
            odd, by_habit = _odd(calls, present, seq=seq)
            return parted(parting, at, odd, by_habit=by_habit)
        pending = [op for op in present.values() if not op.done]
        absent = tuple(sorted(at.keys() - present.keys()))
        if absent and pending:
            return parted(Parting.MISSING, at, absent)
        if pending and unheard:
            return parted(Parting.MISSING, at, unheard)
        if len(pending) == len(present) > 1:
            return parted(Parting.TOGETHER, at)
    return None


def _at(calls: Mapping[int, Mapping[int, Collective]], *, seq: int) -> dict[int, Collective | None]:
    """What each rank called at this number, None where it has not come so far.

    A ring that wrapped has lost old operations: a rank is only missing where its recorder reaches back so far.
    """
    at: dict[int, Collective | None] = {}
    for rank, ops in calls.items():
        if seq in ops or max(ops, default=0) < seq:
            at[rank] = ops.get(seq)
    return at


def _members(latest: Mapping[int, CollectiveState], *, group: str, world: int) -> set[int]:
    members: set[int] = set()
    callers: set[int] = set()
    for state in latest.values():
        for name, ranks in state.groups:
            members.update(ranks if name == group else ())
        if any(op.group == group for op in state.collectives):
            callers.add(state.rank)
    if members:
        return members
    # Only the group of all ranks may be taken to have them all.
    return callers | set(range(world)) if group in ("", "0", "default_pg") else callers


def _parting(ops: Sequence[Collective]) -> Parting | None:
    if len({op.op for op in ops}) > 1:
        return Parting.OPERATION
    if ops and _is_uneven(ops[0]):
        return None
    return Parting.SHAPE if len({(op.sizes, op.dtypes) for op in ops}) > 1 else None


def _odd(
    calls: Mapping[int, Mapping[int, Collective]], present: Mapping[int, Collective], *, seq: int
) -> tuple[tuple[int, ...], bool]:
    """Who does other than the others: the minority, or where there is none, who breaks with what used to follow."""
    kinds = {rank: _kind(op) for rank, op in present.items()}
    (most, number), *others = Counter(kinds.values()).most_common()
    by_habit = bool(others) and others[0][1] == number
    expected = _habit(next(iter(calls.values())), seq=seq) if by_habit else most
    keeps = {rank for rank, kind in kinds.items() if kind == expected}
    if not keeps:
        return (), False
    return tuple(sorted(kinds.keys() - keeps)), by_habit


def _habit(
    ops: Mapping[int, Collective], *, seq: int, kind: Callable[[Collective], tuple[object, ...]] | None = None
) -> tuple[object, ...] | None:
    """What followed the same operations the last time that they came; None when they never came before."""
    kind = kind or _kind
    context = [kind(ops[n]) for n in range(seq - CONTEXT, seq) if n in ops]
    for length in range(len(context), 0, -1):
        tail = context[-length:]
        for end in range(seq - 1, min(ops, default=seq) + length - 1, -1):
            if end in ops and [kind(ops[n]) for n in range(end - length, end) if n in ops] == tail:
                return kind(ops[end])
    return None


def _call(op: Collective) -> tuple[object, ...]:
    """A call among those of all groups; where ranks may give tensors of different sizes, so may turns."""
    return op.group, op.op, op.where, () if _is_uneven(op) else op.sizes


def _is_uneven(op: Collective) -> bool:
    return any(word in op.op for word in UNEVEN) and not any(word in op.op for word in EVEN)


def _kind(op: Collective) -> tuple[object, ...]:
    return op.op, op.sizes, op.dtypes
