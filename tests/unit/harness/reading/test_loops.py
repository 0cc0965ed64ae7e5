"""Loops whose variables py-spy cannot read: a script's own level, and globals that a function names."""

from __future__ import annotations

import ast
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest.mock import Mock

import pytest

from harness.core.evidence import Frame, StackSample, ThreadStack
from harness.reading.loops import (
    CIRCLES,
    UNSEEN,
    Variables,
    changes,
    endless_by_source,
    is_to_be_asked,
    loop_samples,
    may_be_endless,
    progress,
    read_loops,
    runs_once,
    sleeps_for_ever,
    with_variables,
)
from harness.shim.nsa_harness_shim import call_of, own_frames, text_of, values

PID, FILE = 100, "/src/train.py"


def sample(source: str, locals_: dict[str, str] | None = None, *, line: int = 2, t_s: float = 0.0) -> StackSample:
    """A process whose main thread is at ``line`` of ``source``, below one other frame."""
    frames = (Frame(function="<module>", file=FILE, line=line), Frame(function="_run", file="runpy.py", line=1))
    one = StackSample(
        id="stack", source="py-spy", native=False, t_s=t_s, rank=0, pid=PID,
        threads=(ThreadStack(tid=PID, name="MainThread", frames=frames),),
    )  # fmt: skip
    seen = loop_samples(one, {(PID, 0): locals_ or {}}, {FILE: source})
    return StackSample(**{name: getattr(one, name) for name in one.__dataclass_fields__} | {"loops": seen})


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("while n < 10:\n    pass", True),
        ("while len(items) < 10:\n    pass", True),
        ("while True:\n    if n > 3: break", True),
        ("while not done:\n    for x in items: pass", True),
        ("while not done:\n    pass", True),
        ("while True:\n    pass", False),
        ("while n < 10:\n    step()", False),
        ("for n in range(10):\n    pass", False),
    ],
)
def test_a_process_in_a_loop_of_names_and_numbers_is_asked_what_nobody_else_can_see(source, asked):
    assert is_to_be_asked(sample(source)) is asked


INNER = "while lo < hi:\n        if lo > 7: break"
VALUES = {"n": "5", "i": "3", "lo": "0", "hi": "4"}
AROUND = [
    ("for _ in itertools.repeat(None, n):\n    {}", False),
    ("for x in sorted(xs):\n    {}", False),
    ("for x in xs:\n    {}", False),
    ("for x, i in zip(xs, range(9)):\n    {}", False),
    ("for batch in loader:\n    {}", False),
    ("while time.time() < end:\n    {}", False),
    ("while i < n:\n    {}\n    i += step()", False),
    ("while i < n:\n    {}\n    work()\n    i += 0", False),
    ("while i < n:\n    {}\n    if skip(): continue\n    i += 1", False),
    ("while i < n:\n    {}\n    work()\n    if not i: i += 1", False),
    ("while True:\n    {}\n    work()", False),
    ("for i in range(n):\n    {}\n    i = 3", False),
    ("while i < n:\n    {}\n    work()\n    i += 1", True),
    ("for i in range(n):\n    {}", True),
    ("for i, batch in enumerate(loader):\n    {}", True),
    ("while True:\n    {}", True),
    ("while i < n:\n    {}", True),
    ("if n:\n    {}", True),
]
"""What stands around a loop, and whether equal variables of the frame say that it is still the same turn of it."""


@pytest.mark.parametrize(("around", "is_sure"), AROUND)
def test_a_loop_that_one_around_it_may_have_begun_anew_is_not_proved_endless_by_equal_variables(around, is_sure):
    """Short searches, millions of them: the same ``lo`` and ``hi`` three times over were told as an endless loop."""
    inner, *_ = sample(around.format(INNER), VALUES, line=3).loops
    assert (inner.needs != "") is is_sure


def test_a_loop_within_one_that_others_can_end_needs_them_too():
    source = f"while n > 0:\n    {INNER}"
    asked = [Variables(2, {"lo": "0", "hi": "4"}, {"n": "5"})]
    inner, *_ = with_variables(sample(source, line=3), asked, {FILE: source}).loops
    assert inner.needs == "threads"


def test_a_loop_within_one_whose_variables_nobody_read_is_as_unseen_as_that():
    """A global that the outer one counts down is another number in every turn, and the inner one's are the same."""
    inner, *_ = sample(f"while rest > 0:\n    {INNER}", VALUES, line=3).loops
    assert inner.needs == UNSEEN


SEARCH = "def search(lo, hi):\n    while lo < hi:\n        if lo > 7: break\n"


def searching(caller: str, *, t_s: float = 0.0, values: dict[str, str] | None = None, line: int = 5) -> StackSample:
    """One look at ``search``, called from ``line`` of ``main``, whose variables are ``values``."""
    source = f"{SEARCH}def main():\n" + "".join(f"    {row}\n" for row in caller.splitlines()) + "main()\n"
    frames = (
        Frame(function="search", file=FILE, line=3),
        Frame(function="main", file=FILE, line=line),
        Frame(function="<module>", file=FILE, line=len(source.splitlines())),
    )
    thread = ThreadStack(tid=PID, name="MainThread", frames=frames)
    taken = replace(sample(source), t_s=t_s, id=f"stack-{t_s}", threads=(thread,))
    of_frames = {(PID, 0): {"lo": "0", "hi": "4"}, (PID, 1): values or {}}
    return replace(taken, loops=loop_samples(taken, of_frames, {FILE: source}))


def are_endless(samples: list[StackSample]) -> bool:
    return may_be_endless(samples, tid=PID) is not None


@pytest.mark.parametrize(
    ("around", "is_sure"), [row for row in AROUND if row[0] not in ("while True:\n    {}", "while i < n:\n    {}")]
)
def test_a_function_that_one_loop_may_have_called_again_is_not_proved_endless_by_equal_variables(around, is_sure):
    caller = around.format("search(lo, hi)")
    samples = [searching(caller, t_s=2.0 * t, values=VALUES, line=6) for t in range(3)]
    assert are_endless(samples) is is_sure


def test_a_function_that_one_calls_which_calls_itself_is_not_proved_endless_where_nobody_is_asked():
    """A search of a tree: the same function with the same arguments, a hundred million times."""
    samples: list[StackSample] = []
    for t in range(3):
        one = searching("search(lo, hi) + main()", t_s=2.0 * t)
        search, main, module = one.threads[0].frames
        thread = replace(one.threads[0], frames=(search, main, main, module))
        source = SEARCH + "def main():\n    search(lo, hi) + main()\nmain()\n"
        looked = loop_samples(replace(one, threads=(thread,)), {(PID, 0): {"lo": "0", "hi": "4"}}, {FILE: source})
        samples.append(replace(one, loops=looked))
    assert not are_endless(samples)


def test_a_function_that_was_called_in_several_turns_of_a_loop_is_not_proved_endless():
    caller = "for i in range(n):\n    search(lo, hi)"
    samples = [searching(caller, t_s=2.0 * t, values=VALUES | {"i": str(t)}, line=6) for t in range(3)]
    assert not are_endless(samples)


@pytest.mark.parametrize(
    ("line", "is_sure"),
    [
        ("print(sum(map(search, col, col)))", False),
        ("col.sort(key=search)", False),
        ("print(search(8, 9))", True),
        ("print(max(search(8, 9), 3))", True),
        ("model(8)", True),
    ],
)
def test_a_loop_of_a_function_that_c_calls_again_and_again_is_not_proved_endless_by_equal_variables(line, is_sure):
    assert are_endless([searching(line, t_s=2.0 * t) for t in range(3)]) is is_sure


@pytest.mark.parametrize(("calls", "is_sure"), [((7, 7, 7), True), ((7, 7, 9), False), ((7, 7, 0), False)])
@pytest.mark.parametrize("caller", ["for x in xs:\n    search(lo, hi)", "if n:\n    search(lo, hi)"])
def test_what_a_process_says_of_the_call_decides_whether_it_is_the_same_loop(caller, calls, is_sure):
    source = f"{SEARCH}def main():\n" + "".join(f"    {row}\n" for row in caller.splitlines()) + "main()\n"
    samples: list[StackSample] = []
    for t, call in enumerate(calls):
        asked = [Variables(3, {"lo": "0", "hi": "4"}, {}, call)]
        samples.append(with_variables(searching(caller, t_s=2.0 * t, line=6), asked, {FILE: source}))
    assert are_endless(samples) is is_sure


@pytest.mark.parametrize(
    ("work", "is_quick"),
    [
        ("x = 7 ** n % 10", False),
        ("x = 7 ** 40_000_000 % 10", False),
        ("x = 1 << n", False),
        ("x = (n ** 64) ** 64 % 97", False),
        ("x **= n", False),
        ("x = max(range(n))", False),
        ("x = n ** 2", True),
        ("x = n << 3", True),
        ("x = max(n, 3)", True),
        ("x = 2 * n", True),
    ],
)
def test_arithmetic_that_may_take_seconds_is_work(work, is_quick):
    (loop,) = sample(f"while lo < hi:\n    {work}", {"n": "9", "x": "1", "lo": "0", "hi": "2"}, line=2).loops
    assert (loop.needs != "") is is_quick


@pytest.mark.parametrize(
    ("shared", "needs"),
    [
        ({"n": "3"}, "python"),
        ({"n": "<Tensor>"}, ""),
        ({}, UNSEEN),
    ],
)
def test_what_a_process_says_of_its_globals_decides_what_its_loop_needs(shared, needs):
    source = "while n < 10:\n    pass"
    (loop,) = with_variables(sample(source), [Variables(2, {}, shared)], {FILE: source}).loops
    assert loop.needs == needs


def test_locals_are_nobody_elses_though_a_global_has_the_same_name():
    source = "while n < 10:\n    pass"
    (loop,) = with_variables(sample(source), [Variables(2, {"n": "3"}, {})], {FILE: source}).loops
    assert loop.needs == "locals"


def test_variables_of_other_frames_leave_a_loop_as_it_was():
    source = "while n < 10:\n    pass"
    before = sample(source)
    assert with_variables(before, [Variables(1, {"n": "3"}, {})], {FILE: source}).loops == before.loops


def test_a_loop_that_turns_its_own_numbers_in_a_circle_never_ends_and_one_that_turns_others_may():
    source = "while n >= 0:\n    n = (n + 1) % 7"
    (own,) = sample(source, {"n": "3"}).loops
    assert own.endless == "its condition holds whatever its numbers become"
    (shared,) = with_variables(sample(source), [Variables(2, {}, {"n": "3"})], {FILE: source}).loops
    assert shared.endless == ""
    for unlike in ("while n >= 0:\n    n = next(n)", "while n >= 0:\n    n = n % 7\n    if n > 7: break"):
        (loop,) = sample(unlike, {"n": "3"}).loops
        assert loop.endless == "", unlike


SOURCE = """
def train():
    for batch in batches:
        def read():
            return open(batch)
        read()
    sizes = [
        len(b) for b in batches]
    return wait(
        lambda: done)
while hung:
    pass
wait()
"""


@pytest.mark.parametrize(
    ("text", "once"),
    [
        ("return open", True),
        ("        read()\n    sizes", False),
        ("len(b)", False),
        ("lambda", True),
        ("pass", False),
        ("\nwait()", True),
    ],
)
def test_what_runs_once_is_in_no_loop_of_its_function(text, once):
    assert runs_once(SOURCE, line=SOURCE[: SOURCE.index(text)].count("\n") + 1 + text.startswith("\n")) is once


def test_nothing_is_known_to_run_once_where_there_is_no_source():
    assert not runs_once("", line=1)
    assert not runs_once("def f(:", line=1)


@pytest.mark.parametrize("numbers", [("1", "1", "1"), ("1", "2", "3")])
def test_only_a_loop_of_which_nothing_changes_may_be_endless(numbers):
    source = "while n < 10:\n    pass"
    seen = [
        with_variables(sample(source, t_s=2.0 * t), [Variables(2, {}, {"n": n})], {FILE: source})
        for t, n in enumerate(numbers)
    ]
    found = may_be_endless(seen, tid=PID)
    assert (found is not None) is (len(set(numbers)) == 1)


@pytest.mark.parametrize(
    ("source", "numbers", "may_end"),
    [
        ("while n < 10:\n    n = n + 1", "123", True),
        ("while n < 10:\n    n = n - 1", "321", False),
        ("while n >= 10:\n    n = n - 1", "321", True),
        ("while n >= 10:\n    n = n + 1", "123", False),
        ("while n < 10:\n    n = 3 - n", "121", False),
        ("while n < 10:\n    n = f(n)", "121", True),
        ("while True:\n    if n > 9: break\n    n = 3 - n", "121", False),
    ],
)
def test_a_loop_of_plain_numbers_may_end_only_if_they_come_nearer_to_what_they_are_compared_with(
    source, numbers, may_end
):
    seen = [
        with_variables(sample(source, {"n": n}, t_s=2.0 * t), [Variables(2, {"n": n}, {})], {FILE: source})
        for t, n in enumerate(numbers)
    ]
    assert (changes(seen) is not None) is may_end


LIMIT, SECRET = 12, "a password"


def test_a_process_says_numbers_as_they_are_and_texts_by_a_fingerprint():
    count, names = 3, ["a", "b"]
    (outer, own, shared, _), *_ = values(own_frames(sys._getframe()))
    assert outer > 1
    assert (own["count"], shared["LIMIT"]) == ("3", "12")
    assert own["names"].startswith("[")
    assert SECRET not in shared["SECRET"] == text_of(SECRET) != text_of("another")
    assert "values" not in shared
    assert (count, names, LIMIT) == (3, ["a", "b"], 12)


def test_a_frame_carries_one_number_as_long_as_its_call_lasts():
    def called() -> tuple[int, int]:
        return call_of(sys._getframe()), call_of(sys._getframe())

    (first, again), (second, _) = called(), called()
    assert first == again != 0
    assert second not in (0, first)


def test_a_frame_that_a_debugger_traces_is_left_alone():
    frame = sys._getframe()
    frame.f_trace = mine = Mock()
    try:
        assert call_of(frame) == 0
        assert frame.f_trace is mine
    finally:
        frame.f_trace = None


def test_what_a_function_shares_with_one_inside_it_is_not_its_own():
    """A thread that runs the inner one may set it, so a loop that asks it may end."""
    turns, mine = 3, 4

    def stop():
        nonlocal turns
        turns = -1
        return values(own_frames(sys._getframe()))

    (_, own, shared, _), *_ = values(own_frames(sys._getframe()))
    assert ("turns" in own, shared["turns"], own["mine"]) == (False, "3", "4")
    (_, own, shared, _), *_ = stop()
    assert ("turns" in own, shared["turns"], turns, mine) == (False, "-1", -1, 4)


def test_what_has_operators_of_its_own_is_told_by_its_type_alone():
    class Whole(int):
        def __repr__(self):
            raise AssertionError("nothing of the program's is asked anything")

    assert text_of(Whole(3)) == "<Whole>"
    assert text_of([Whole(3)]) == "<list>"
    assert text_of(1 << 70) == "<int>"


@pytest.mark.parametrize(
    ("header", "gets_on"),
    [
        ("for turn in range(10_000):\n", ["turn"]),
        ("for turn in batches:\n", ["turn", "offset"]),
        ("for turn in itertools.count():\n", []),
        ("for turn in count(1):\n", []),
        ("for turn in itertools.count():\n    if turn > last: break\n", ["turn"]),
        ("for turn in itertools.count():\n    batch = next(batches)\n", ["turn"]),
        ("for turn in itertools.count():\n    if turn > last: sys.exit()\n", ["turn"]),
    ],
    ids=lambda value: value.strip() if isinstance(value, str) else "",
)
def test_what_turns_for_ever_by_its_source_gets_nowhere_nor_does_what_is_within_it(header, gets_on):
    source = header + "    for offset in range(4096):\n        pages[offset] = 1"
    line = source.count("\n") + 1
    seen = [
        sample(source, {"turn": str(100 * t), "offset": str(10 * t), "last": "5"}, line=line, t_s=2.0 * t)
        for t in range(1, 4)
    ]
    assert [one.name for one in progress(seen)] == gets_on


CUT = "[" + ", ".join(str(n) for n in range(32)) + ", ...]"


@pytest.mark.parametrize(
    ("source", "locals_", "may_be"),
    [
        ("while regs[63] < regs[62]:\n    regs[63] += 1", {"regs": CUT}, False),
        ("while regs[3] < regs[2]:\n    regs[3] = 7", {"regs": "[0, 0, 9, 7]"}, True),
        ("while regs[3] < n:\n    regs[3] = 7", {"regs": "[<Big at 0x7f>, 0, 9, 7]", "n": "9"}, False),
        ("while regs[0] < n:\n    regs[0] += 1", {"regs": "[+bigint]", "n": "9"}, False),
        ("while regs[3] < n:\n    i = 1", {"regs": CUT, "n": "9"}, True),
        ("while len(text) < n:\n    text += 'x'", {"text": '"xxxxxx..."', "n": "9000"}, False),
        ("while text != end:\n    pass", {"text": '"<s>"', "end": '"</s>"'}, True),
        ("while self.n:\n    self.n -= 1", {"self": "<Down at 0x7f>"}, False),
        ("while self.n < n:\n    other.n += 1", {"self": "<Up at 0x7f>", "other": "<Up at 0x7f>", "n": "9"}, False),
        ("while not self.done:\n    self.polls += 1\nclass Job: done = 3", {"self": "<Job at 0x7f>"}, True),
        ("while not self.done:\n    self.polls += 1", {"self": "<Job at 0x7f>"}, False),
        ("while regs[0] < n:\n    pass", {"regs": "[<Tensor at 0x7f>]", "n": "9"}, False),
        ("while True:\n    xs[i]", {"xs": CUT, "i": "1"}, True),
        ("while self.next().n < n:\n    pass", {"self": "<Job at 0x7f>", "n": "9"}, False),
    ],
)
def test_what_a_loop_changes_must_be_seen_whole_before_it_can_be_called_the_same(source, locals_, may_be):
    seen = [sample(source, locals_, t_s=2.0 * t) for t in range(1, 4)]
    assert (may_be_endless(seen, tid=PID) is not None) is may_be


def test_another_thread_may_put_into_a_list_what_a_loop_waits_for():
    (loop,) = sample("while box[0] < n:\n    pass", {"box": "[0]", "n": "1"}).loops
    assert loop.needs == "python"


@pytest.mark.parametrize(
    ("header", "numbers", "gets_on"),
    [
        ("for v in squares:", (0, 0, 1), False),
        ("for v in squares:", (1, 4, 9), True),
        ("for v in enumerate(squares):", (0, 0, 1), True),
        ("for v in tqdm(range(n)):", (0, 0, 1), True),
    ],
)
def test_what_an_iterator_gives_counts_no_turns_unless_it_always_grows(header, numbers, gets_on):
    seen = [sample(f"{header}\n    pass", {"v": str(v), "n": "100"}, t_s=2.0 * t) for t, v in enumerate(numbers)]
    assert bool(progress(seen)) is gets_on


def test_sources_are_parsed_one_at_a_time(monkeypatch):
    """Ranks are looked at in threads, and two that parse at a time made Python 3.11 raise SystemError."""
    at_work, most, parse = [], [], ast.parse

    def slowly(source, *more, **named):
        at_work.append(source)
        most.append(len(at_work))
        time.sleep(0.02)
        at_work.remove(source)
        return parse(source, *more, **named)

    monkeypatch.setattr("harness.reading.plain.ast.parse", slowly)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: read_loops(f"for turn in range({n}):\n    work()", line=2), range(40, 48)))

    assert max(most) == 1
    assert all(len(loops) == 1 for loops in found)


def test_a_source_that_python_fails_to_parse_once_is_read_the_next_time(monkeypatch):
    source = "while wanted:\n    work()"
    with monkeypatch.context() as failing:
        failing.setattr("harness.reading.plain.ast.parse", Mock(side_effect=SystemError("depth mismatch")))
        assert read_loops(source, line=2) == ()

    assert len(read_loops(source, line=2)) == 1


@pytest.mark.parametrize(
    ("source", "for_ever"),
    [
        ("while True:\n    time.sleep(1)", True),
        ("while 1:\n    sleep(pause)", True),
        ("for turn in range(9):\n    while True: time.sleep(0.5)", True),
        ("while True:\n    time.sleep(next_pause())", False),
        ("while not done:\n    time.sleep(1)", False),
        ("done = False\nwhile not done:\n    time.sleep(1)", True),
        ("turns = 0\nmost = 9\nwhile turns != most or most > 3:\n    time.sleep(1)", True),
        ("done = tries = 0\nwhile not done:\n    tries += 1\n    time.sleep(1)", True),
        ("done = False\nwhile not done:\n    time.sleep(1)\n    done = True", False),
        ("done = 0\nwhile done < 9:\n    time.sleep(1)\n    done += 1", False),
        ("done = False\nwhile not done:\n    time.sleep(1)\n    look()", False),
        ("done = False\nwhile not done:\n    time.sleep(1)\n    state = job.state", False),
        ("done = False\nwhile not done or late():\n    time.sleep(1)", False),
        ("done = False\nwhile not done and job.runs:\n    time.sleep(1)", False),
        ("done = False\nwhile not done:\n    time.sleep(1)\n    if late: break", False),
        ("done = flag()\nwhile not done:\n    time.sleep(1)", False),
        ("done = False\nfrom jobs import done\nwhile not done:\n    time.sleep(1)", False),
        ("done = False\nfrom jobs import *\nwhile not done:\n    time.sleep(1)", False),
        ("done = False\ndef wait(done):\n    pass\nwhile not done:\n    time.sleep(1)", False),
        ("done = []\nwhile not done:\n    time.sleep(1)", False),
        ("class S: done = False\ns = S()\nwhile not s.done:\n    time.sleep(1)", True),
        ("class S:\n    done = 0\nwhile S.done != 3:\n    time.sleep(1)", True),
        ("class S:\n  def __init__(self): self.on = 1\n  def go(self):\n    while self.on: time.sleep(1)", True),
        ("class S: done = False\ns = S()\nwhile not s.done:\n    time.sleep(1)\n    s.done = True", False),
        ("class S:\n  @property\n  def done(self): return look()\ns = S()\nwhile not s.done: time.sleep(1)", False),
        ("class S:\n  def __getattr__(self, n): return 0\ns = S()\nwhile not s.done: time.sleep(1)", False),
        ("class S(Shared): done = False\ns = S()\nwhile not s.done:\n    time.sleep(1)", False),
        ("class S(threading.Thread): done = False\ns = S()\nwhile not s.done:\n    time.sleep(1)", True),
        (
            "from threading import Thread as T\nclass A(T): done = False\nclass S(A): pass\ns = S()\n"
            "while not s.done:\n    time.sleep(1)",
            True,
        ),
        ("class S(threading.Thread): daemon = False\ns = S()\nwhile not s.daemon:\n    time.sleep(1)", False),
        ("from jobs import Thread\nclass S(Thread): done = False\ns = S()\nwhile not s.done: time.sleep(1)", False),
        ("class S:\n  def __init__(s): s.on = 1\n  def go(s):\n    while s.on: time.sleep(1)", True),
        ("class S:\n  def __init__(s): s.on = 1\n  def go(s, t):\n    while t.on: time.sleep(1)", False),
        ("class S:\n  on = 1\n  @staticmethod\n  def go(s):\n    while s.on: time.sleep(1)", False),
        ("class S:\n  on = 1\n  def go(s, o):\n    s = o\n    while s.on: time.sleep(1)", False),
        (
            "class S:\n  def __init__(s): s.up = threading.Event()\n  def go(s):\n"
            "    while not s.up.is_set(): time.sleep(1)",
            True,
        ),
        ("class S: done = Shared()\ns = S()\nwhile not s.done:\n    time.sleep(1)", False),
        ("class S: done = False\ns = other()\nwhile not s.done:\n    time.sleep(1)", False),
        ("class S: done = False\ndef wait(s):\n    while not s.done:\n        time.sleep(1)\ns = S()", False),
        ("done = threading.Event()\nwhile not done.is_set():\n    time.sleep(1)", True),
        ("from threading import Event\ndone = Event()\nwhile not done.is_set():\n    time.sleep(1)", True),
        (
            "class S:\n  def __init__(self): self.up = threading.Event()\n  def go(self):\n"
            "    while not self.up.is_set(): time.sleep(1)",
            True,
        ),
        (
            "class S:\n  def __init__(self, up): self.up = up\n  def go(self):\n"
            "    while not self.up.is_set(): time.sleep(1)\ns.up = threading.Event()",
            False,
        ),
        ("done = mp.Event()\nwhile not done.is_set():\n    time.sleep(1)", False),
        ("from multiprocessing import Event\ndone = Event()\nwhile not done.is_set():\n    time.sleep(1)", False),
        ("done = threading.Event()\ndone = mp.Event()\nwhile not done.is_set():\n    time.sleep(1)", False),
        ("done = threading.Event()\ndef f(done):\n  while not done.is_set():\n    time.sleep(1)", False),
        ("done = threading.Event()\nwhile not done.is_set():\n    time.sleep(1)\n    done = other", False),
        ("done = threading.Event()\nfrom jobs import *\nwhile not done.is_set():\n    time.sleep(1)", False),
        ("s.up = threading.Event()\nwhile not worker.up.is_set():\n    time.sleep(1)", False),
        ("done = threading.Event()\nwhile not done.is_set() and job.done():\n    time.sleep(1)", False),
        ("import sys\ndone = threading.Event()\nsys.settrace(f)\nwhile not done.is_set():\n    time.sleep(1)", False),
        ("while True:\n    time.sleep(1)\n    state = self.state", False),
        ("import flags\nflags.done = False\nwhile not flags.done:\n    time.sleep(1)", False),
        ("while True:\n    time.sleep(1)\n    look()", False),
        ("while True:\n    time.sleep(1)\n    if done: break", False),
        ("for turn in range(9):\n    time.sleep(1)", False),
    ],
)
def test_a_loop_sleeps_for_ever_only_if_its_source_has_no_way_out_and_does_nothing_else(source, for_ever):
    line = 1 + source[: source.index("sleep(")].count("\n")
    source += "\nimport time\nfrom time import sleep\n"
    bare = [replace(sample(source, t_s=t_s, line=line), native=True, loops=()) for t_s in (1.0, 2.0, 3.0)]
    seen = [replace(one, loops=endless_by_source(one, {FILE: source})) for one in bare]
    assert (sleeps_for_ever(seen, tid=PID) is not None) is for_ever
    assert sleeps_for_ever(seen[:2], tid=PID) is None
    assert sleeps_for_ever([*seen[:2], bare[2]], tid=PID) is None


@pytest.mark.parametrize(
    ("by", "sleeps"),
    [
        ("import time", True),
        ("import time as t\nt.sleep(2)", False),
        ("time = library", False),
        ("from trio import sleep\nsleep(1)", False),
        ("import time\ndef sleep(n): turn()", False),
        ("import time\ntime.sleep = turn", False),
    ],
)
def test_what_is_called_sleep_may_be_the_turn_of_an_event_loop(by, sleeps):
    source = f"while True:\n    time.sleep(1)\n{by}\n"
    bare = [replace(sample(source, t_s=t_s, line=2), native=True, loops=()) for t_s in (1.0, 2.0, 3.0)]
    seen = [replace(one, loops=endless_by_source(one, {FILE: source})) for one in bare]
    assert (sleeps_for_ever(seen, tid=PID) is not None) is sleeps


@pytest.mark.parametrize(
    ("made", "needs"),
    [("class S: ready = False\nst = S()\n", "threads"), ("st = Shared.from_buffer(memory)\n", "")],
)
def test_what_may_lie_in_memory_of_another_program_is_nothing_that_only_threads_can_change(made, needs):
    source = f"{made}def spin():\n    while not st.ready: pass\n"
    assert [loop.needs for loop in sample(source, line=source.count("\n")).loops if loop.depth == 0] == [needs]


@pytest.mark.parametrize(
    ("hook", "awaited"),
    [("pass", {"flag"}), ("sys.addaudithook(audit)", set()), ("gc.callbacks.append(audit)", set())],
)
def test_a_function_that_python_runs_within_others_may_set_what_a_loop_waits_for(hook, awaited):
    source = f"import sys\nflag = False\n{hook}\nwhile not flag:\n    time.sleep(1)"
    assert read_loops(source, line=5)[0].awaited == awaited


def need_of(source: str, values: dict[str, str], *, line: int = 2) -> str:
    """Whose doing the end is of the loop on the first line of ``source``."""
    return next(loop.needs for loop in sample(source, values, line=line).loops if loop.header_line == 1)


TRIPLES = (
    "while changed:\n    changed = False\n    for a in xs:\n        for b in xs:\n            if a > b: changed = True"
)


@pytest.mark.parametrize(
    ("xs", "needs"),
    [("[0, 0, 3]", "python"), ("[#10 5feceb66ffc86f38]", "python"), ("[#990 5feceb66ffc86f38]", UNSEEN), (CUT, UNSEEN)],
)
def test_how_far_a_loop_over_items_is_that_may_repeat_its_variables_do_not_tell(xs, needs):
    assert need_of(TRIPLES, {"changed": "False", "a": "0", "b": "0", "xs": xs}, line=5) == needs


@pytest.mark.parametrize(
    ("inner", "needs"),
    [
        ("for i in range(n):\n        x = i", "locals"),
        ("for i in range(n):\n        for i in range(n): x = i", UNSEEN),
        ("for i in range(n):\n        i = 0", UNSEEN),
        ("for k in range(n):\n        pass", UNSEEN),
        ("for c in text:\n        pass", UNSEEN),
        ("for i in numbers():\n        pass", ""),
        ("for i in range(n):\n        if i in xs: x = xs[0]", UNSEEN),
        ("if x not in few:\n        few[0] = 1", "python"),
    ],
)
def test_a_loop_over_numbers_is_part_of_what_its_variables_tell_where_its_own_is_seen(inner, needs):
    values = {"x": "1", "i": "3", "n": "9", "c": '"A"', "text": '"AAAA"', "xs": CUT, "few": "[1, 2]"}
    assert need_of(f"while x < 5:\n    {inner}", values, line=3) == needs


def test_a_process_says_how_many_items_a_container_has():
    assert text_of([0] * 990).startswith("[#990 ")
    assert text_of((1, 2)).startswith("(#2 ")
    assert text_of({"a": 1}).startswith("{#1 ")


ASKED = "while not {}:\n    x = 1\n{}"
JOB = "class Job{}:\n  def __init__(self, n):\n    self.done = {}\n{}"


@pytest.mark.parametrize(
    ("asked", "made", "needs"),
    [
        ("end.done()", "from stopwatch import Deadline\nend = Deadline(45)", ""),
        ("end.is_set()", "def burn(end): pass", ""),
        ("end.is_set()", "import threading as th\nend = th.Event()", "threads"),
        ("end.is_set()", "from threading import Event as E\nend = E()", "threads"),
        ("end.is_set()", "from jobs import Event\nend = Event()", ""),
        ("end.locked()", "end = threading.Lock()", "threads"),
        ("end.is_alive()", "import torch.multiprocessing as mp\nend = mp.Process(target=work, args=(3,))", "threads"),
        ("end.is_alive()", "from multiprocessing import Process\nend = Process(target=work)", "threads"),
        ("self.end.is_set()", "self.end = threading.Event()", "threads"),
        ("self.end.is_set()", "self.end = threading.Event()\nself.end = other", ""),
        ("self.done", JOB.format("", "False", ""), "threads"),
        ("self.done", JOB.format("", "n = False", ""), "threads"),
        ("self.done", JOB.format("", "n", ""), ""),
        ("self.done", JOB.format("(Stopwatch)", "False", ""), ""),
        ("self.done", JOB.format("", "False", "  def __getattr__(self, name): return look()"), ""),
        ("self.done", JOB.format("", "False", "class Other:\n  done = property(look)"), ""),
        ("self.done", "class Other:\n  def __init__(self): self.done = False", ""),
        ("self.flag.value", "class Job:\n  def __init__(self): self.flag = ctypes.c_int.from_buffer(memory)", ""),
        ("self.flag", "class Job:\n  def __init__(self): self.flag = ctypes.c_int.from_buffer(memory)", ""),
    ],
)
def test_what_an_object_answers_is_part_of_a_loops_state_only_where_this_file_shows_that_it_is_plain(
    asked, made, needs
):
    assert need_of(ASKED.format(asked, made), {"x": "1", "self": "<Job at 0x7f>"}) == needs


@pytest.mark.parametrize(
    ("stop", "needs"),
    [
        ("stop = False\ndef end():\n  global stop\n  stop = True", "threads"),
        ("from stopwatch import Deadline\nstop = Deadline(45)", UNSEEN),
        ("from jobs import stop", UNSEEN),
        ("", UNSEEN),
    ],
)
def test_a_name_that_nobody_saw_may_ask_the_clock_unless_the_file_gives_it_nothing_but_constants(stop, needs):
    assert need_of(f"while not stop:\n    x = 1\n{stop}", {"x": "1"}) == needs


def test_numbers_that_are_given_side_by_side_are_plain():
    source = (
        "class Job:\n  def __init__(self): self.i, self.n = 0, 10\n  def go(self):\n    while self.i < self.n: pass"
    )
    (loop,) = (one for one in sample(source, {"self": "<Job at 0x7f>"}, line=4).loops if one.depth == 0)
    assert loop.needs == "threads"


def calls_of(source: str, values: list[dict[str, str]], *, line: int = 3, calls: tuple[int, ...] = ()) -> str | None:
    """Why a loop is endless that was seen with these locals, one look after the other; None where it may end."""
    seen: list[StackSample] = []
    for t, own in enumerate(values):
        told = [Variables(2, own, {}, call=calls[t] if calls else 7)]
        seen.append(with_variables(sample(source, own, line=line, t_s=2.0 * t), told, {FILE: source}))
    loop = may_be_endless(seen, tid=PID)
    return loop.endless if loop is not None else None


CONVERGES = "while True:\n    y = (x + n // x) // 2\n    if y == x: break\n    x = y\n"
"""The root of ``n``, by steps that may go to and fro between two numbers."""


@pytest.mark.parametrize(
    ("ways", "calls", "why"),
    [
        ("ABA", (), CIRCLES),
        ("ABCDB", (), CIRCLES),
        ("ABBAC", (), CIRCLES),
        ("AAB", (), None),
        ("ABC", (), None),
        ("ABA", (7, 7, 9), None),
        ("ABA", (0, 0, 0), None),
        ("BAAB", (5, 7, 7, 7), None),
    ],
)
def test_a_loop_of_plain_locals_is_endless_once_one_call_of_it_came_back_to_where_it_had_been(ways, calls, why):
    values = [{"n": "120", "x": str(10 + ord(way)), "y": "10"} for way in ways]
    assert calls_of(CONVERGES, values, calls=calls) == why


@pytest.mark.parametrize(
    "source",
    [
        "while True:\n    y = root(n, x)\n    if y == x: break\n",
        "while True:\n    y = xs[x]\n    if y == x: break\n",
        "for y in items:\n    if y == x: break\n    x = y\n",
        "while True:\n    y = x\n    yield y\n",
    ],
)
def test_what_has_more_state_than_its_locals_is_nowhere_again_by_them(source):
    values = [{"n": "120", "x": x, "y": "10", "xs": "[1, 2]"} for x in ("10", "11", "10")]
    assert calls_of(source, values, line=2) is None


def test_a_loop_that_passes_by_the_same_variables_in_two_others_is_not_back_where_it_was():
    """Up in the first, down again in the second."""
    source = "while i < n:\n    while j < n:\n        j += 1\n    while j > 0:\n        j -= 1\n    i += 1\n"
    seen: list[StackSample] = []
    for t, (line, j) in enumerate(((3, "5"), (3, "8"), (5, "5"))):
        own = {"i": "0", "j": j, "n": "9"}
        one = sample(source, own, line=line, t_s=2.0 * t)
        seen.append(with_variables(one, [Variables(2, own, {}, call=7)], {FILE: source}))
    assert may_be_endless(seen, tid=PID) is None


BISECTS = (
    "while lo < hi:\n    steps += 1\n    mid = (lo + hi) // 2\n"
    "    if mid < want: lo = mid\n    if mid >= want: hi = mid\n"
)


@pytest.mark.parametrize(
    ("source", "is_sure"),
    [
        (BISECTS, True),
        (f"{BISECTS}    if late: return steps\n", True),
        (f"{BISECTS}    if steps > 9: break\n", False),
        (f"{BISECTS}    lo = lo + steps\n", False),
        (BISECTS.replace("+= 1", "+= mid"), False),
        (BISECTS.replace("+= 1", "*= 2"), False),
        (f"{BISECTS}    steps = 0\n", False),
        ("while steps < 9:\n" + "".join(f"    {row}\n" for row in BISECTS.splitlines()), False),
    ],
)
def test_a_number_that_a_loop_only_counts_with_decides_nothing(source, is_sure):
    values = [{"lo": "6", "hi": "7", "mid": "6", "want": "7", "late": "False", "steps": str(5 * t)} for t in range(3)]
    assert (calls_of(source, values) is not None) is is_sure


SKIPS = "while i < n:\n    if i % 301 == 300:\n        {}\n    work(i)\n    yield i\n    {}\n"


@pytest.mark.parametrize(
    ("skips", "steps", "values", "line", "is_sure"),
    [
        ("continue", "i += 1", {"i": "300", "n": "1000"}, 2, True),
        ("continue", "i += 1", {"i": "300", "n": "1000"}, 3, True),
        ("continue", "i += 1", {"i": "901", "n": "1000"}, 2, False),
        ("continue", "i += 1", {"i": "300", "n": "1000"}, 4, False),
        ("i += 1; continue", "i += 1", {"i": "300", "n": "1000"}, 2, False),
        ("skipped(i); continue", "i += 1", {"i": "300", "n": "1000"}, 2, False),
        ("pass", "i += 1", {"i": "300", "n": "1000"}, 2, False),
        ("continue", "i = after(i)", {"i": "300", "n": "1000"}, 2, False),
        ("continue", "i -= 1; i += 2", {"i": "300", "n": "1000"}, 2, False),
        ("continue", "i += 1", {"i": "<Index at 0x7f>", "n": "1000"}, 2, False),
        ("continue", "i += 1", {"n": "1000"}, 2, False),
    ],
)
def test_what_no_turn_gets_to_is_no_part_of_a_loop(skips, steps, values, line, is_sure):
    """A generator that works and yields at every turn, but for the one that it never leaves."""
    source = SKIPS.format(skips, steps)
    assert (calls_of(source, [values] * 3, line=line) is not None) is is_sure
    assert calls_of(source, [values, {**values, "i": "301"}, values], line=line) is None


@pytest.mark.parametrize(
    ("x", "is_sure"), [("-0.30000000000000004", True), ("0.1", False), ("-2e-05", True), ("nan", False)]
)
def test_a_float_that_has_passed_by_what_it_is_compared_with_never_meets_it(x, is_sure):
    """Ten times a tenth is no one: the step over zero is seen once, and from there on it only goes away."""
    source = "while lr != stop:\n    lr -= 0.1\n"
    loop = sample(source, {"lr": x, "stop": "0.0"}).loops[0]
    assert bool(loop.endless) is is_sure


@pytest.mark.parametrize(
    ("body", "counted"),
    [("done += 1", {"done"}), ("done += 1\n        if done > 9: return", set()), ("for x in xs: done += 1", set())],
    ids=["counts alone", "is asked", "goes through items"],
)
def test_what_a_loop_only_counts_decides_nothing_unless_it_alone_shows_how_far_items_are_gone_through(body, counted):
    head = "def check(xs, n):\n    done = 0\n    while n != 0:\n        n = (n * 5) % 97\n"
    source = f"{head}        {body}\n    return done\n"
    assert read_loops(source, line=4)[0].only_counted == counted
