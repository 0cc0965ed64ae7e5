"""The linter for words: what five incident reports said, line by line, and what it must leave alone."""

from __future__ import annotations

import pytest

from harness.report.claims import lint, problems

SAFE_MODE = """\
3. **Likely graph complexity**: the three-branch architecture may create gradient dependency cycles
   - Proven stable at all scales
# Further isolation testing (if multi-GPU critical)
provides marginal improvement but doesn't resolve the fundamental incompatibility between NSA and DDP
"""
PATCHED = """\
- P2P communication not the root cause
## Root Cause Hypothesis
# If this works, confirms NSA-specific issue
The issue appears to be a fundamental incompatibility. Single-GPU remains the only working configuration.
"""
READY_TWICE = """\
**Status**: DDP INCOMPATIBILITY CONFIRMED
The incompatibility was definitively confirmed, exactly matching our predictions
Memory dumps - Not reached (crashed too early)
"DDP + gradient checkpointing will always crash"
this is validation of our thorough analysis
"""
LAYERS = """\
### Root Cause Analysis
#### The issue is NOT caused by:
#### The issue IS caused by:
Likely bug in gradient computation
"""
CHECKPOINTING = """\
GPU testing confirms critical training failures. This provides definitive evidence.
```
Config: m7c_125m_2k_test.yaml (smaller)
Result: FAIL (subprocess issues, needs retest)
```
#### Critical Finding #2: Gradient Checkpointing Primary Culprit
```
Hang at backward() on single GPU?
    YES -> Gradient Checkpointing Issue (CONFIRMED)
```
The evidence definitively identifies gradient checkpointing as the root cause of training failures.
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (SAFE_MODE, [2, 4]),
        (PATCHED, [1, 2, 3, 4]),
        (READY_TWICE, [1, 2, 4, 5]),
        (LAYERS, [1, 2, 3]),
        (CHECKPOINTING, [1, 6, 9, 11]),
    ],
    ids=["safe-mode", "patched", "ready-twice", "layers", "checkpointing"],
)
def test_each_of_the_five_reports_is_flagged_at_the_lines_that_claim(text, lines):
    assert sorted({problem.line for problem in problems(text)}) == lines


def test_a_claim_is_shown_beside_what_the_same_text_says_was_not_tested():
    found = next(p for p in problems(CHECKPOINTING) if p.word == "CONFIRMED")
    assert (found.untested_line, found.untested) == (4, "needs retest")
    assert str(found).endswith("say observed, reproduced or isolated (line 4 says: 'needs retest')")


@pytest.mark.parametrize(
    "text",
    [
        "a stall that the retry did not reproduce is not confirmed",
        "no more than this was observed; reproduced 2 of 2",
        "```text\nroot cause: confirmed\n```",
        "the log says `root cause confirmed`",
        "combinations that failed and never passed; it never hung in 29 trials",
    ],
)
def test_what_may_be_said_is_left_alone(text):
    assert lint(text) == []


def test_that_something_is_not_the_cause_is_a_claim_too():
    assert len(lint("The network is not the root cause.")) == 1


@pytest.mark.parametrize("text", ["With the patch it never hangs.", "It cannot crash.", "It will never fail again."])
def test_that_something_never_happens_is_more_than_trials_show(text):
    assert len(lint(text)) == 1


def test_where_a_link_leads_is_no_claim_but_its_words_are():
    assert lint("A hang is told by looking longer ([why](docs/adr/0005-confirm-a-hang.md)).") == []
    assert len(lint("This is [confirmed](evidence.md).")) == 1
