"""Named signatures: whether a failure is the one that a matrix file describes, so that no other is taken for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.core.verdict import FAILURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.evidence import Evidence
    from harness.core.matrix import SignatureSpec
    from harness.core.verdict import Verdict


def matches(signature: SignatureSpec, verdict: Verdict, evidence: Evidence) -> bool:
    """Whether kind, output and stacks all are what ``signature`` says; what it leaves out is not looked at.

    A stack pattern may match any frame of any sample, or the traceback of a process that raised; an output pattern
    may match anywhere in what was kept of both streams, or in the exception's own message.
    """
    if verdict.kind is not signature.kind:
        return False
    if signature.log is not None and not re.search(signature.log, _output(evidence)):
        return False
    return signature.stack is None or bool(re.search(signature.stack, _stacks(verdict, evidence)))


def name_of(signatures: Sequence[SignatureSpec], verdict: Verdict, evidence: Evidence) -> str:
    """The failure's name: the first signature that matches, else its kind and cause; empty when it did not fail."""
    for signature in signatures:
        if matches(signature, verdict, evidence):
            return signature.name
    return str(verdict) if verdict.kind in FAILURES else ""


def _output(evidence: Evidence) -> str:
    raised = [f"{r.exception}: {r.message}\n{r.traceback}" for r in evidence.results if r.exception]
    return "\n".join([evidence.output, *raised])


def _stacks(verdict: Verdict, evidence: Evidence) -> str:
    lines: list[str] = []
    for sample in evidence.stacks:
        for thread in sample.threads:
            lines += map(str, thread.frames)
    lines += [result.traceback for result in evidence.results if result.traceback]
    return "\n".join([*lines, verdict.signature or ""])
