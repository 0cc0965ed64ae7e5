from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.core.cause import Cause, CellCount, Need
from harness.core.point import Axis, AxisType, Point
from harness.core.space import Factor, Space
from harness.core.verdict import Answer, Confidence, Kind, Verdict
from harness.search.oracle import Oracle, not_followed

GOOD, BAD, UNRESOLVED = Answer.GOOD, Answer.BAD, Answer.UNRESOLVED


def verdict(kind: Kind, cause: str | None = None, *, at: str = "", path: str = "", because: str = "b") -> Verdict:
    signature = f"{kind} {cause}: {at}" if at else None
    return Verdict(
        kind=kind,
        cause=cause,
        rule="r",
        because=because,
        cites=("exit",),
        confidence=Confidence.HIGH,
        signature=signature,
        path=tuple(path.split()),
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


@pytest.mark.parametrize(
    ("at", "message", "answer"),
    [
        ("two.fail < two.g", "failed in g", UNRESOLVED),
        ("two.fail < two.g", "failed in f 12", BAD),
        ("two.fail < two.f", "failed in g", BAD),
        ("two.fail < two.g", "", BAD),
    ],
)
def test_a_common_helper_that_raises_with_other_words_for_another_caller_is_another_failure(at, message, answer):
    def raised(at: str, message: str) -> Verdict:
        because = f"raised RuntimeError in two.fail, in output: {message}" if message else "b"
        return verdict(Kind.CRASH, "RuntimeError", at=at, because=because)

    oracle = Oracle()
    assert oracle.answer(raised("two.fail < two.f", "failed in f 3")) is BAD
    assert oracle.answer(raised(at, message)) is answer
    assert oracle.others == (() if answer is BAD else ("CRASH (RuntimeError) in two.fail < two.g",))


@pytest.mark.parametrize("kind", [Kind.HANG, Kind.CRASH])
@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("two.fail two.f two.<module>", BAD),
        ("two.fail two.g two.<module>", UNRESOLVED),
        ("two.fail two.<module>", UNRESOLVED),
        ("two.fail two.f", BAD),  # a dump may end before the outermost frames
        ("", BAD),
    ],
)
def test_a_common_helper_that_fails_for_another_caller_is_another_failure(kind, path, answer):
    here = verdict(kind, "deadlock", at="threading.wait < two.fail < two.f", path="two.fail two.f two.<module>")
    there = verdict(kind, "deadlock", at="threading.wait < two.fail < two.g", path=path)
    oracle = Oracle()
    assert oracle.answer(here) is BAD
    assert oracle.answer(there) is answer
    assert oracle.others == (() if answer is BAD else (f"{kind} (deadlock) in {' < '.join(path.split())}",))


def test_along_commits_callers_change_their_names_and_the_failure_is_the_same():
    old = verdict(Kind.HANG, "deadlock", at="ddp.reduce < train.step", path="ddp.reduce train.step")
    new = verdict(Kind.HANG, "deadlock", at="ddp.reduce < train.train_step", path="ddp.reduce train.train_step")
    oracle = Oracle(code_varies=True)
    assert [oracle.answer(old), oracle.answer(new)] == [BAD, BAD]


def test_a_hang_without_a_path_is_another_only_when_its_stack_has_nothing_in_common():
    oracle = Oracle()
    backward = verdict(Kind.HANG, "deadlock", at="lock.acquire < probe.strike < trainer.backward")
    without_native = verdict(Kind.HANG, "deadlock", at="probe.strike < trainer.backward")
    loading = verdict(Kind.HANG, "deadlock", at="queue.get < loader.next")
    assert [oracle.answer(v) for v in (backward, without_native, loading)] == [BAD, BAD, UNRESOLVED]
    assert oracle.others == ("HANG (deadlock) in queue.get",)


def test_two_command_lines_that_are_refused_for_different_reasons_are_two_failures():
    zero = verdict(Kind.CRASH, "usage-error", at='"--zero requires --shard N"')
    fused = verdict(Kind.CRASH, "usage-error", at='"--fused excludes --offload"')
    oracle = Oracle()
    assert [oracle.answer(v) for v in (fused, zero, fused)] == [BAD, UNRESOLVED, BAD]
    assert oracle.sought == 'CRASH (usage-error), "--fused excludes --offload"'
    assert oracle.others == ('CRASH (usage-error), "--zero requires --shard N"',)


def test_a_refused_command_line_is_passed_over_by_a_search_for_a_cause_unless_crashes_are_asked_for():
    refused = verdict(Kind.CRASH, "usage-error", at='"--fused excludes --offload"')
    oracle = Oracle(past_refusals=True)
    assert [oracle.answer(v) for v in (refused, HANG, refused)] == [UNRESOLVED, BAD, UNRESOLVED]
    assert Oracle((Kind.CRASH,), past_refusals=True).answer(refused) is BAD


FLAG_AXES = [Axis(name=name, path=f"flags.{name}", type=AxisType.FLAG, values=(False, True)) for name in "abc"]
FLAGS = Space(factors=tuple(Factor(axis=axis, good=False, bad=True) for axis in FLAG_AXES))
C_ALONE = Cause(
    needs=(Need(axis="c", value=True, good=False, last_good=False),),
    seen=CellCount(cell=FLAGS.good.with_value("c", True), bad=4),
)


def record(seen: Verdict, answer: Answer, *names: str):
    """As much of a record as is looked at."""
    cell = Point.of({name: name in names for name in "abc"})
    return SimpleNamespace(trial=SimpleNamespace(point=cell), verdict=seen, answer=answer)


KEY, VALUE = verdict(Kind.CRASH, "KeyError"), verdict(Kind.CRASH, "ValueError")


@pytest.mark.parametrize(
    ("other", "causes", "may_set", "how"),
    [
        (VALUE, (C_ALONE,), True, "the same command and --set c=false"),
        (VALUE, (C_ALONE,), False, "--bad crash, which takes both for one failure"),
        (VALUE, (), True, "--bad crash, which takes both for one failure"),
        (DEADLOCK, (C_ALONE,), True, "--bad hang"),
    ],
)
def test_another_failure_is_told_with_its_fewest_settings_and_with_what_seeks_it_alone(other, causes, may_set, how):
    records = [record(other, UNRESOLVED, "a", "b", "c"), record(KEY, BAD, "c"), record(other, UNRESOLVED, "a", "b")]
    (sentence,) = not_followed(records, space=FLAGS, causes=causes, may_set=may_set)
    assert sentence == (
        f"Another failure was seen and not followed: {other}, 2 times, with a=true,b=true and 1 other cell. "
        f"Seek it with {how}."
    )


def test_a_refused_command_line_is_told_as_such_and_nothing_seeks_it():
    refused = verdict(Kind.CRASH, "usage-error", at='"--fused excludes --offload"')
    records = [record(refused, UNRESOLVED, "a", "b"), record(refused, UNRESOLVED, "a", "b")]
    assert not_followed(records, space=FLAGS, causes=(), may_set=True) == (
        'Refused by the program, so that nothing was tried there: CRASH (usage-error), "--fused excludes --offload", '
        "2 times, with a=true,b=true.",
    )
