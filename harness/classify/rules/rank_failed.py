"""A rank failed by itself; what the others said or did afterwards follows from it."""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from harness.classify.facts import first_verdict, log_with
from harness.classify.messages import cause_of
from harness.classify.rules.crashed import crashed, nonfinite
from harness.classify.rules.exit_abort import exit_abort
from harness.classify.rules.oom import oom
from harness.classify.rules.own_limit import own_limit
from harness.classify.rules.passed import early_exit
from harness.classify.views import alike, cited, others_than, views_of, waiting, who

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.classify.views import RankView
    from harness.core.evidence import EvidenceId
    from harness.core.verdict import Case, Verdict

OWN = (nonfinite, oom, exit_abort, own_limit, crashed, early_exit)
"""The rules for one process, asked about the rank that failed first."""

_NAMED = re.compile(r" on ranks? (\d+)")


def rank_failed(case: Case) -> Verdict | None:
    """The first rank whose end is not that of one which lost another: its own verdict, and what became of the rest."""
    views = views_of(case)
    own = [view for view in views if view.failed and not view.follows]
    own.sort(key=lambda view: inf if view.facts.ended_s is None else view.facts.ended_s)
    if not own:
        return None
    mismatch = _mismatch(case, own)
    if mismatch is not None:
        return mismatch
    first = own[0]
    verdict = first_verdict(OWN, first.case)
    if verdict is None:
        return None
    blamed = _NAMED.search(verdict.because) if len(own) == len(views) else None
    rank = int(blamed[1]) if blamed else first.rank
    rest = others_than(first, views)
    alike_all = len(own) == len(views) and len(set(map(_kind, own))) == 1 and not blamed
    return replace(
        verdict,
        because=f"{'all ranks alike' if alike_all else f'rank {first.rank}'}: {verdict.because}"
        f"{_afterwards(first, rest)}",
        cites=tuple(dict.fromkeys((first.facts.id, *verdict.cites, *cited(rest)))),
        phase=verdict.phase or first.phase,
        rank=None if alike_all else rank,
    )


def _kind(view: RankView) -> object:
    """What a rank failed of, for comparison with the others."""
    result = view.facts.result
    return (view.facts.exit, None) if result is None else (result.exception, result.message)


def _mismatch(case: Case, own: Sequence[RankView]) -> Verdict | None:
    """A collective that the library itself refused: it says that the calls differ, not whose is wrong."""
    text, source = _refusal(case, own)
    verdict = first_verdict(OWN, own[0].case) if text else None
    if verdict is None:
        return None
    line = " ".join(text.split())
    return replace(
        verdict,
        cause="collective-mismatch",
        because=f"the ranks made different calls where they must make the same one; {who(own)} ended, and {source} "
        f"says: {line[:400]}",
        cites=(source, *(view.facts.id for view in own), "exit"),
        rank=None,
        signature="CRASH collective-mismatch",
    )


def _refusal(case: Case, own: Sequence[RankView]) -> tuple[str, EvidenceId]:
    """The library's words for it and where they are: an exception's, or output if a signal ended one; else empty."""
    for view in own:
        result = view.facts.result
        if result is not None and result.message and _differ(result.message):
            return result.message, result.id
    log = log_with(case, _differ)
    if log is None or not any(view.facts.exit is not None and view.facts.exit.signal is not None for view in own):
        return "", ""
    return next(filter(_differ, log.text.splitlines())), log.id


def _differ(text: str) -> bool:
    return any(cause_of(line) == "collective-mismatch" for line in text.splitlines())


def _afterwards(first: RankView, rest: Sequence[RankView]) -> str:
    followers: list[RankView] = []
    waiters: list[RankView] = []
    for view in rest:
        if view.follows:
            followers.append(view)
        elif view.there and view.meeting is not None:
            waiters.append(view)
    they = "it" if len(followers) == 1 else "they"
    sentence = f"; {who(followers)} then said that {they} lost rank {first.rank}" if followers else ""
    for group in alike(waiters):
        sentence += f"; {waiting(group)}, and would for ever"
    return sentence
