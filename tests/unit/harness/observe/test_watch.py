"""What the watch does next, as a pure question: silences played through without a clock or a process."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from harness.core.outcome import StopReason
from harness.observe.watch import AFTERMATH_S, CLOSING_S, LONGEST_POLL_S, ROUND, Act, State, next_look, next_step

SUSPICIOUS_S, LIMIT_S, TOTAL_S = 3.0, 30.0, 600.0
QUIET = State(
    age_s=0.0, silence_s=0.0, suspicious_s=SUSPICIOUS_S, limit_s=LIMIT_S, limited=StopReason.STALL, total_s=TOTAL_S
)
DUMP_S = 0.2
"""What a dump of stacks takes in these silences."""


def silence(*, until_s=1000.0, works=lambda s: False, hang=lambda s: "", **facts):
    """Every step but sleeps with the silence at which it was asked for, and the step that ended it."""
    at_s, done = 0.0, []
    state = replace(QUIET, **facts)
    while at_s < until_s:
        state = replace(
            state,
            age_s=state.age_s if not done and at_s == 0.0 else facts.get("age_s", 0.0) + at_s,
            silence_s=at_s,
            works=works(state.verdict_at_s),
            hang=hang(state.verdict_at_s),
        )
        step = next_step(state)
        if step.act is Act.END:
            return done, step
        if step.act is Act.SLEEP:
            at_s += step.seconds
            state = replace(state, rested_s=state.rested_s + step.seconds)
            continue
        if step.begins:
            up = state.time_is_up or state.age_s >= state.total_s
            state = replace(state, round_began_s=at_s, position=0, time_is_up=up)
        done.append((at_s, step))
        at_s += DUMP_S if step.act is Act.DUMP else 0.0
        verdict_at_s = at_s if step.act is not Act.RECORDERS else state.verdict_at_s
        state = replace(state, position=min(state.position + 1, len(ROUND)), rested_s=0.0, verdict_at_s=verdict_at_s)
    return done, None


def began(done):
    return [at_s for at_s, step in done if step.begins]


def test_what_is_quick_is_only_looked_after():
    step = next_step(replace(QUIET, age_s=100.0, silence_s=2.9))
    assert (step.act, step.seconds) == (Act.SLEEP, LONGEST_POLL_S)


def test_it_is_looked_after_often_at_first():
    assert next_step(QUIET).seconds == 0.02
    assert next_step(replace(QUIET, age_s=2.0)).seconds == pytest.approx(0.1)


def test_a_round_has_three_dumps_and_windows_of_a_second_that_no_dump_disturbs():
    done = silence(until_s=SUSPICIOUS_S + 6.0)[0][: len(ROUND)]
    assert [step.act for _, step in done] == [act for _, act in ROUND]
    dumps = [at_s for at_s, step in done if step.act is Act.DUMP]
    assert len(dumps) == 3
    assert all(2.0 > b - a > 1.1 for a, b in pairwise(dumps))
    looks = [at_s for at_s, step in done if step.act is Act.LOOK]
    assert sum(b - a > 1.0 for a, b in pairwise(looks)) == 3


def test_rounds_begin_when_it_becomes_suspicious_then_whenever_the_silence_doubled_and_before_each_decision():
    done, end = silence()
    decisions = [LIMIT_S - CLOSING_S, 4 * LIMIT_S - CLOSING_S]
    expected = sorted([3.0, 6.0, 12.0, 24.0, 48.0, 96.0, *decisions])
    found = began(done)
    # One that falls into another's five seconds begins when that one is over, or is the same.
    assert all(any(0 <= at_s - moment < 6.0 for at_s in found) for moment in expected)
    assert len(found) <= len(expected)
    assert end.reason is StopReason.STALL


def test_what_is_known_by_nobody_to_move_is_ended_after_four_limits_and_never_before():
    done, end = silence()
    assert (end.act, end.reason) == (Act.END, StopReason.STALL)
    assert done[-1][0] + CLOSING_S >= 4 * LIMIT_S
    assert "silent for 120" in end.why


def test_what_the_rules_see_at_work_is_left_to_the_total_limit():
    _, end = silence(works=lambda verdict_at_s: verdict_at_s > 0)
    assert end.reason is StopReason.TOTAL


def test_a_hang_is_ended_at_the_next_step_with_what_the_rules_say():
    done, end = silence(hang=lambda verdict_at_s: "rank 1 waits for itself" if verdict_at_s > 5.0 else "")
    assert (end.reason, end.why) == (StopReason.CERTAIN, "rank 1 waits for itself")
    assert done[-1][0] < 7.0


def test_an_exit_outranks_everything_and_an_interrupt_everything_but_an_exit():
    hung = replace(QUIET, silence_s=200.0, age_s=700.0, hang="x", interrupted=True)
    assert next_step(replace(hung, exited=True)).reason is None
    assert next_step(hung).reason is StopReason.INTERRUPT


def test_a_trial_whose_time_is_up_is_looked_into_first_where_it_is_silent():
    quiet = replace(QUIET, age_s=TOTAL_S, silence_s=1.0)
    assert next_step(quiet).reason is StopReason.TOTAL
    assert next_step(replace(quiet, silence_s=20.0)).begins
    examined = replace(quiet, silence_s=20.0, round_began_s=15.0, position=len(ROUND))
    assert next_step(examined).reason is StopReason.TOTAL
    long_ago = replace(examined, silence_s=200.0, rested_s=180.0)
    assert next_step(long_ago).begins


def test_a_total_limit_below_the_other_limits_still_ends_with_a_round():
    done, end = silence(total_s=20.0)
    assert end.reason is StopReason.TOTAL
    assert began(done)[-1] >= 20.0 - 2 * CLOSING_S


@pytest.mark.parametrize("total_s", [5.0, 6.0, 7.5, 8.0, 9.0, 10.0, 11.0, 12.0, 15.0, 16.0, 20.0, 27.0, 40.0])
def test_a_silent_trial_is_looked_into_before_its_total_limit_and_not_past_it(total_s):
    done, end = silence(total_s=total_s, limit_s=120.0)
    dumps_s = [at_s for at_s, step in done if step.act is Act.DUMP]
    assert end.reason is StopReason.TOTAL
    assert done[-1][0] <= total_s + 0.3
    assert total_s - 9.0 < dumps_s[-3]
    assert len(dumps_s) % 3 == 0
    assert done[-1][1].act is Act.LOOK
    assert any(step.native for _, step in done[-len(ROUND) :])


def test_a_silence_shortly_before_the_total_limit_is_looked_into_at_once_and_a_usual_one_is_not():
    _, end = silence(age_s=TOTAL_S - 4.0)
    assert end.reason is StopReason.TOTAL
    assert began(silence(age_s=TOTAL_S - 4.0)[0])[0] == pytest.approx(1.0, abs=0.2)
    assert began(silence(age_s=TOTAL_S - 4.0, suspicious_s=4.5)[0]) == []


def test_the_rules_are_asked_again_when_a_decision_falls_due():
    state = replace(QUIET, silence_s=60.5, due_s=(60.0,), round_began_s=56.0, position=len(ROUND), verdict_at_s=59.9)
    assert next_step(state).act is Act.LOOK
    assert next_step(replace(state, verdict_at_s=60.5)).act is Act.SLEEP


@pytest.mark.parametrize(("several", "natives"), [(False, [False, False, False]), (True, [False, True, True])])
def test_native_frames_of_all_are_taken_of_several_ranks_but_not_at_first(several, natives):
    done = silence(until_s=SUSPICIOUS_S + 6.0, several=several)[0][: len(ROUND)]
    assert [step.native for _, step in done if step.act is Act.DUMP] == natives


def test_native_frames_of_all_are_taken_before_a_decision():
    done, _ = silence()
    last = [step.native for at_s, step in done if step.act is Act.DUMP and at_s > 4 * LIMIT_S - 2 * CLOSING_S]
    assert last
    assert all(last)


def test_after_a_failure_the_others_have_time_to_end_and_are_looked_at_before_they_are_ended():
    failed = replace(QUIET, age_s=50.0, silence_s=5.0)
    assert next_step(replace(failed, failed_s=AFTERMATH_S - 0.1)).act is Act.SLEEP
    assert next_step(replace(failed, failed_s=AFTERMATH_S)).begins
    examined = replace(failed, failed_s=12.0, round_began_s=5.0, position=len(ROUND))
    assert next_step(examined).reason is StopReason.CERTAIN


def test_a_job_of_somebody_else_is_looked_at_at_once_and_not_ended():
    assert next_look(QUIET, rounds_left=2).begins
    done = replace(QUIET, silence_s=5.0, round_began_s=0.0, position=len(ROUND))
    assert next_look(done, rounds_left=1).begins
    assert next_look(replace(done, works=True), rounds_left=1).act is Act.END
    assert next_look(done, rounds_left=0).act is Act.END
    assert next_look(replace(done, hang="rank 1 waits"), rounds_left=2).why == "rank 1 waits"


def test_a_user_who_interrupts_a_silent_trial_is_told_where_it_is_before_it_is_ended():
    asked = replace(QUIET, age_s=50.0, silence_s=20.0, interrupted=True, examine=True)
    assert next_step(asked).begins
    within = replace(asked, round_began_s=20.0, position=3, rested_s=0.0, time_is_up=True)
    assert next_step(within).act is not Act.END
    over = replace(within, position=len(ROUND))
    assert next_step(over).reason is StopReason.EXAMINED
    assert next_step(replace(over, hang="rank 1 waits for itself")).reason is StopReason.CERTAIN


def test_one_that_was_just_looked_into_or_gets_on_is_ended_at_once():
    examined = replace(
        QUIET, age_s=50.0, silence_s=20.0, round_began_s=14.0, position=len(ROUND), interrupted=True, examine=True
    )
    assert next_step(examined).reason is StopReason.EXAMINED
    assert next_step(replace(QUIET, age_s=50.0, silence_s=1.0, interrupted=True, examine=True)).reason is (
        StopReason.INTERRUPT
    )
