"""The job ended badly, and no rank says or shows that it was the one: what is known is known of the whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.rules.crashed import crashed
from harness.classify.rules.early_exit import early_exit
from harness.classify.rules.oom import oom
from harness.classify.views import views_of

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict


def ranks_crashed(case: Case) -> Verdict | None:
    """The launcher's own exit status or signal, where nothing is known of any rank's end."""
    if any(view.failed for view in views_of(case)):
        return None
    verdict = next((verdict for rule in (oom, crashed, early_exit) if (verdict := rule(case)) is not None), None)
    if verdict is None:
        return None
    because = f"the launcher of {len(case.evidence.ranks)} ranks: {verdict.because}; no rank says how it ended"
    return replace(verdict, because=because, rank=None)
