"""Whether a loop over whole numbers never ends: a table, and random loops that are run."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.reading.ranges import holds_for_ever


def holds(source: str, **values: float) -> bool:
    (loop,) = ast.parse(source).body
    assert isinstance(loop, ast.While)
    return holds_for_ever(loop, values)


@pytest.mark.parametrize(
    ("source", "values", "for_ever"),
    [
        ("while n >= 0: n = (n + 1) % 1000", {"n": 523}, True),
        ("while n >= 0: n += 1", {"n": 5}, True),
        ("while n < 10:\n n = n % 5\n m = m + 1", {"n": 4, "m": 0}, True),
        ("while not n == 9: n = n // 2", {"n": 4}, True),
        ("while n:\n n = n * 2 % 7 + 1", {"n": 4}, True),
        ("while n >= 0: n -= 1", {"n": 5}, False),
        ("while n < 1000: n = (n + 1) % 1001", {"n": 5}, False),
        ("while n < 10: m = 1 // k", {"n": 4, "m": 0, "k": 0}, False),
        ("while n < 10:\n if m // k: pass", {"n": 4, "m": 0, "k": 0}, False),
        ("while n < 10:\n n = read()", {"n": 4}, False),
        ("while n < 10:\n for m in items: n = 3", {"n": 4, "m": 1}, False),
        ("while n < limit: pass", {"n": 4}, False),
        ("while x != stop: x -= 0.1", {"x": -0.1, "stop": 0.0}, True),
        ("while x != stop:\n x -= 0.1\n time.sleep(0.01)", {"x": -0.1, "stop": 0.0}, False),
        ("while x != stop: x -= 0.1", {"x": 0.1, "stop": 0.0}, False),
        ("while x > stop: x = x * 0.999", {"x": 1.0, "stop": 0.0}, False),
        ("while x < y:\n x = x + 1.5\n y = y + x", {"x": 1.0, "y": 9.0}, False),
        ("while x < 9: x = x % 9", {"x": 1.5}, False),
        ("while x > 0:\n x = n + 0.5\n n = n + n", {"x": 1.5, "n": 1}, False),
        ("while x > 0:\n x = x + 0.5\n n = n + 1", {"x": 1.5, "n": 1}, True),
        ("while x != 0.5:\n x = x - 1\n y = y + 1.5\n z = x + y", {"x": -1.5, "y": 1.5}, False),
    ],
)
def test_a_loop_is_endless_only_where_no_value_of_its_numbers_ends_it(source, values, for_ever):
    assert holds(source, **values) is for_ever


NUMBERS = st.sampled_from(["a", "b", "0", "1", "2", "7", "10"])
TERMS = st.one_of(
    NUMBERS,
    st.tuples(NUMBERS, st.sampled_from(["+", "-", "*", "//", "%"]), NUMBERS).map("({0[0]} {0[1]} {0[2]})".format),
)
TESTS = st.tuples(TERMS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), TERMS).map(" ".join)
STATEMENTS = st.one_of(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["=", "+=", "-=", "%="]), TERMS).map(" ".join),
    st.tuples(TESTS, st.sampled_from("ab"), TERMS).map("if {0[0]}: {0[1]} = {0[2]}".format),
)


FLOATS = st.sampled_from(["a", "b", "0", "1", "0.1", "2.5", "1e300"])
SUMS = st.tuples(FLOATS, st.sampled_from("+-*"), FLOATS).map(" ".join)


@given(
    test=st.tuples(FLOATS, st.sampled_from(["<", ">=", "==", "!="]), FLOATS).map(" ".join),
    body=st.lists(st.tuples(st.sampled_from("ab"), SUMS).map(" = ".join), min_size=1, max_size=3),
    a=st.floats(-20, 20),
    b=st.floats(-20, 20),
)
def test_what_is_called_endless_of_floats_is_in_its_loop_after_three_hundred_turns(test, body, a, b):
    source = f"while {test}:\n" + "".join(f"    {line}\n" for line in body)
    if holds(source, a=a, b=b):
        names = {"a": a, "b": b, "left": 300}
        exec(source.replace(":\n", ":\n    left -= 1\n    if left == 0: break\n", 1), names)
        assert names["left"] == 0


@given(test=TESTS, body=st.lists(STATEMENTS, min_size=1, max_size=3), a=st.integers(-20, 20), b=st.integers(-20, 20))
def test_what_is_called_endless_is_in_its_loop_after_three_hundred_turns(test, body, a, b):
    source = f"while {test}:\n" + "".join(f"    {line}\n" for line in body)
    if not holds(source, a=a, b=b):
        return
    counted = source.replace(":\n", ":\n    left -= 1\n    if left == 0: break\n", 1)
    names = {"a": a, "b": b, "left": 300}
    exec(counted, names)
    assert names["left"] == 0, source
