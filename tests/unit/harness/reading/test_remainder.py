"""How long loops within loops still need, by what samples of a stack tell of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.core.evidence import LoopSample, Position, StackSample
from harness.reading.loops import progress, remainder

PID = 7


def loop(value, bound, *, counter="t", outer=4, line=27):
    return LoopSample(
        tid=PID, depth=0, outer=outer, function="Attention.forward", file="/home/me/model.py", line=line + 1,
        header_line=line, header=f"for {counter} in range({bound}):", counters=((counter, value),), counter=counter,
        bound=bound,
    )  # fmt: skip


def unknown(outer, header="for block in self.blocks:", *, speaks=False, line=89):
    return LoopSample(
        tid=PID, depth=3, outer=outer, function="Model.forward", file="/home/me/model.py", line=90, header_line=line,
        header=header, speaks=speaks,
    )  # fmt: skip


def block(place, of=12):
    return Position(
        function="forward", file="/torch/nn/modules/container.py", line=253, name="module", place=place, of=of, outer=3
    )


def sample(t_s, *loops, positions=()):
    return StackSample(
        id=f"stack-{t_s}", source="py-spy", native=False, t_s=t_s, rank=0, pid=PID, threads=(), loops=loops,
        positions=positions,
    )  # fmt: skip


def test_one_loop_needs_the_rest_of_its_turns():
    rest = remainder([sample(10.0, loop(100, 1000)), sample(20.0, loop(200, 1000))])
    assert rest.remaining_s == pytest.approx(80.0)
    assert not rest.at_least


def test_a_block_of_twelve_takes_the_others_time_along():
    samples = [sample(0.0, loop(0, 100), positions=(block(0),)), sample(60.0, loop(50, 100), positions=(block(2),))]
    rest = remainder(samples)
    # Two and a half blocks of twelve in a minute.
    assert rest.remaining_s == pytest.approx(60.0 * 9.5 / 2.5)
    assert rest.around == (block(2),)


def test_samples_that_do_not_tell_the_block_are_left_out():
    samples = [
        sample(0.0, loop(0, 100), positions=(block(0),)),
        sample(60.0, loop(50, 100), positions=(block(2),)),
        sample(61.0, loop(51, 100)),
    ]
    assert remainder(samples).remaining_s == pytest.approx(60.0 * 9.5 / 2.5)


def test_with_the_block_told_once_the_rate_is_the_inner_loops():
    samples = [
        sample(0.0, loop(10, 100)),
        sample(2.0, loop(20, 100)),
        sample(4.0, loop(30, 100), positions=(block(1),)),
    ]
    assert remainder(samples).remaining_s == pytest.approx((12 - 1.3) * 100 / 5.0)


def test_what_comes_round_again_is_counted_from_its_latest_beginning():
    samples = [sample(0.0, loop(90, 100)), sample(10.0, loop(10, 100)), sample(20.0, loop(30, 100))]
    assert remainder(samples).remaining_s == pytest.approx(35.0)


def test_within_a_loop_of_unknown_length_it_is_at_least_that():
    training = unknown(2, "for step in range(asked.steps):", speaks=True)
    known = [sample(t, training, loop(int(10 * t), 100)) for t in (1.0, 2.0)]
    assert not remainder(known).at_least
    blocks = [sample(t, training, unknown(3), loop(int(10 * t), 100)) for t in (1.0, 2.0)]
    assert remainder(blocks).at_least
    told = [sample(t, training, unknown(3), loop(int(10 * t), 100), positions=(block(1),)) for t in (1.0, 2.0)]
    assert not remainder(told).at_least


@pytest.mark.parametrize(("outer", "line"), [(1, 89), (4, 20)], ids=["a function that calls it", "the same function"])
def test_a_loop_around_whose_turns_make_no_mark_may_have_many_more(outer, line):
    prompts = unknown(outer, "for prompt in prompts:", line=line)
    assert remainder([sample(t, prompts, loop(int(10 * t), 100)) for t in (1.0, 2.0)]).at_least
    within = unknown(outer + 4, "for item in items:", line=line)
    assert not remainder([sample(t, within, loop(int(10 * t), 100)) for t in (1.0, 2.0)]).at_least


def test_a_counter_beyond_its_bound_was_another_number():
    assert progress([sample(t, loop(n, 900)) for t, n in ((1.0, 10), (2.0, 20), (3.0, 1646813))]) == ()
    samples = [sample(1.0, loop(100, 900)), sample(2.0, loop(200, 900)), sample(3.0, loop(1646813, 900))]
    assert remainder(samples).remaining_s == pytest.approx(7.0)


@pytest.mark.parametrize(
    ("header", "numbers", "gets_on"),
    [
        ("while lo < hi:", (17, 790, 790), False),
        ("while lo < hi:", (5, 5, 6), True),
        ("while lo < hi:", (100, 300, 500), True),
        ("for lo in range(0, hi, 64):", (0, 0, 64), True),
    ],
)
def test_what_is_counted_by_hand_does_not_leap_once_and_stand_still(header, numbers, gets_on):
    samples = []
    for t_s, number in enumerate(numbers):
        samples.append(sample(float(t_s), replace(loop(number, 791, counter="lo"), header=header)))
    assert bool(progress(samples)) is gets_on


def test_nothing_that_turns_tells_nothing():
    assert remainder([]) is None
    assert remainder([sample(1.0, unknown(2)), sample(2.0, unknown(2))]) is None
    assert remainder([sample(1.0, loop(5, 100)), sample(2.0, loop(5, 100))]) is None


def test_a_loop_within_one_that_turned_has_no_rate_of_its_own():
    samples = [
        sample(t, loop(int(100 * t), 2048), loop(h, 96, counter="h", line=29))
        for t, h in ((1.0, 3), (2.0, 40), (3.0, 86))
    ]
    assert [one.name for one in progress(samples)] == ["t"]


def heads(value):
    return loop(value, 96, counter="h", outer=4, line=29)


@pytest.mark.parametrize(
    ("tokens", "place", "said"),
    [
        ((1900, 100, 700), (2, 2, 2), "t is 700 of 2048 in Attention.forward (model.py:27)"),
        ((100, 700, 1900), (2, 3, 3), "t is 1900 of 2048 in Attention.forward (model.py:27)"),
        (
            (100, 200, 300),
            (2, 2, 2),
            "t is 300 of 2048 in Attention.forward (model.py:27), 50 a second; this loop needs 35 s more",
        ),
    ],
    ids=["the loop around began anew", "the list around went on", "it only grew"],
)
def test_a_loop_within_another_turn_of_one_has_no_rate(tokens, place, said):
    """Its counter grew by chance: 84 of 96 heads were "19 a second" where 8,000 went by."""
    samples = []
    for i in range(3):
        at = loop(tokens[i], 2048), heads((10, 40, 84)[i])
        samples.append(sample(2.0 * i, *at, positions=(block(place[i]),)))
    assert [str(one) for one in progress(samples)] == [said]


def test_a_loop_of_unknown_length_that_turned_is_all_that_tells():
    around = replace(loop(0, None, counter="step", outer=1, line=70), header="for step, batch in enumerate(loader):")
    samples = [sample(2.0 * i, replace(around, counters=(("step", 5 + i),)), heads(10 + 30 * i)) for i in range(3)]
    assert [one.name for one in progress(samples)] == ["step"]


def test_a_counter_beyond_its_bound_was_misread_and_that_sample_does_not_count():
    """Read while the program lets its number go, and the memory has become another's."""
    values = (630, 824, 40_260, 1_013)
    samples = [sample(2.0 * i, loop(value, 20_000)) for i, value in enumerate(values)]
    assert [one.value for one in progress(samples)] == [1_013]
