from __future__ import annotations

import pytest

from harness.core.verdict import Answer, Confidence, Kind, Verdict
from harness.search.oracle import Oracle

GOOD, BAD, UNRESOLVED = Answer.GOOD, Answer.BAD, Answer.UNRESOLVED


def verdict(kind: Kind, cause: str | None = None, *, at: str = "") -> Verdict:
    signature = f"{kind} {cause}: {at}" if at else None
    return Verdict(
        kind=kind, cause=cause, rule="r", because="b", cites=("exit",), confidence=Confidence.HIGH, signature=signature
    )


DEADLOCK, GIL, HANG = verdict(Kind.HANG, "deadlock"), verdict(Kind.HANG, "gil-held"), verdict(Kind.HANG)
OOM, CRASH, PASS = verdict(Kind.OOM), verdict(Kind.CRASH), verdict(Kind.PASS)


def test_the_first_failure_becomes_the_one_being_sought():
    oracle = Oracle()
    assert [oracle.answer(v) for v in (PASS, DEADLOCK, PASS, DEADLOCK)] == [GOOD, BAD, GOOD, BAD]
    assert oracle.sought == "HANG (deadlock)"


@pytest.mark.parametrize("other", [OOM, CRASH, GIL], ids=str)
def test_a_different_failure_later_is_unresolved_and_named(other):
    oracle = Oracle()
    oracle.answer(DEADLOCK)
    assert oracle.answer(other) is UNRESOLVED
    assert oracle.answer(other) is UNRESOLVED
    assert oracle.others == (str(other),)
    assert oracle.reason(other) == f"it ended in {other}, but HANG (deadlock) is being sought"


def test_a_cause_that_was_not_told_matches_any_until_one_is():
    oracle = Oracle()
    assert [oracle.answer(v) for v in (HANG, DEADLOCK, HANG, GIL)] == [BAD, BAD, BAD, UNRESOLVED]


@pytest.mark.parametrize("kind", [Kind.SLOW, Kind.INFRA, Kind.UNRESOLVED, Kind.BELOW_TARGET])
def test_what_is_no_failure_of_the_program_is_never_sought(kind):
    oracle = Oracle()
    assert oracle.answer(verdict(kind)) is UNRESOLVED
    assert oracle.answer(DEADLOCK) is BAD
    assert oracle.others == ()
    assert "neither a pass nor" in oracle.reason(verdict(kind))


def test_named_kinds_are_bad_whatever_their_cause_and_nothing_else_is():
    oracle = Oracle((Kind.HANG, Kind.SLOW))
    seen = [oracle.answer(v) for v in (OOM, DEADLOCK, GIL, verdict(Kind.SLOW), PASS, CRASH)]
    assert seen == [UNRESOLVED, BAD, BAD, BAD, GOOD, UNRESOLVED]
    assert oracle.sought == "HANG or SLOW"
    assert oracle.others == ("OOM", "CRASH")


def test_asking_for_the_reason_changes_nothing():
    oracle = Oracle()
    assert "the failure being sought" in oracle.reason(OOM)
    assert oracle.answer(DEADLOCK) is BAD
    assert oracle.reason(PASS) == "it passed"


def test_the_same_verdicts_again_give_the_same_answers():
    verdicts = [PASS, HANG, OOM, DEADLOCK, GIL, CRASH, PASS]
    first, second = Oracle(), Oracle()
    assert [first.answer(v) for v in verdicts] == [second.answer(v) for v in verdicts]
    assert (first.sought, first.others) == (second.sought, second.others)


def test_the_same_exception_from_another_function_is_another_failure():
    oracle = Oracle()
    here = verdict(Kind.CRASH, "RuntimeError", at="reducer.mark_ready < trainer.step")
    there = verdict(Kind.CRASH, "RuntimeError", at="attention.forward < trainer.step")
    untold = verdict(Kind.CRASH, "RuntimeError")
    assert [oracle.answer(v) for v in (here, there, here, untold)] == [BAD, UNRESOLVED, BAD, BAD]
    assert oracle.sought == "CRASH (RuntimeError) in reducer.mark_ready"
    assert oracle.others == ("CRASH (RuntimeError) in attention.forward",)
    assert oracle.reason(there) == (
        "it ended in CRASH (RuntimeError) in attention.forward, but CRASH (RuntimeError) in reducer.mark_ready "
        "is being sought"
    )


def test_a_hang_is_another_only_when_its_stack_has_nothing_in_common():
    oracle = Oracle()
    backward = verdict(Kind.HANG, "deadlock", at="lock.acquire < probe.strike < trainer.backward")
    without_native = verdict(Kind.HANG, "deadlock", at="probe.strike < trainer.backward")
    loading = verdict(Kind.HANG, "deadlock", at="queue.get < loader.next")
    assert [oracle.answer(v) for v in (backward, without_native, loading)] == [BAD, BAD, UNRESOLVED]
    assert oracle.others == ("HANG (deadlock) in queue.get",)
