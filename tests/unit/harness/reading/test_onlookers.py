"""What a thread does next, by its source: threads as people write them beside their training."""

from __future__ import annotations

import pytest

from harness.core.evidence import Frame, StackSample, ThreadStack
from harness.reading.onlookers import (
    are_written_to,
    compile_texts,
    looks_on,
    of_sample,
    sets_an_alarm,
    stand_between,
    words_that_hand_out,
)
from harness.reading.stillness import actors_of, onlookers_of, plain_onlookers_of

LIB = "/usr/lib/python3.11/"
STARTED = (
    Frame(function="run", file=f"{LIB}threading.py", line=1),
    Frame(function="_bootstrap_inner", file=f"{LIB}threading.py", line=2),
    Frame(function="_bootstrap", file=f"{LIB}threading.py", line=3),
)
HEAD = """
import gc, time, os, sys, json, logging, signal, threading, subprocess, psutil, torch
from prometheus_client import Gauge
log, gauge, me, stats = logging.getLogger(), Gauge("a", "b"), psutil.Process(), {}
lock, stop, done, q = threading.Lock(), threading.Event(), threading.Event(), queue.Queue()
threads, child = [threading.current_thread()], subprocess.Popen("train")
procs = [child]
"""


def threads(body, *, at="time.sleep", by=STARTED):
    """A thread that sleeps at the line of ``beside`` that has ``at``, and its source."""
    source = HEAD + body
    line = next(n for n, text in enumerate(source.splitlines(), 1) if at in text)
    frames = (Frame(function="beside", file="/src/train.py", line=line), *by)
    return ThreadStack(tid=7, name="", frames=frames), {"/src/train.py": source}


METRICS = """
def beside():
    while not stop.wait(5):
        with open("metrics.csv", "a") as f:
            f.write(f"{time.time()},{stats['step']}\\n")
"""
ALIVE = """
def beside():
    while True:
        time.sleep(10)
        log.info("alive: %d, loss %.3f", sum(t.is_alive() for t in threads), stats["loss"])
"""
MEMORY = """
def beside():
    while True:
        row = {"rss": me.memory_info().rss, "gpu": torch.cuda.memory_allocated()}
        row["cpu"] = psutil.cpu_percent()
        gauge.set(row["rss"])
        print(json.dumps(row), file=sys.stderr, flush=True)
        time.sleep(2)
"""
IN_PARTS = """
class Monitor(threading.Thread):
    def __init__(self):
        self.file, self.stop = open("log", "w"), threading.Event()
    def say(self):
        self.file.write(" ".join(str(x) for x in os.getloadavg()))
        self.file.flush()
    def run(self):
        while not self.stop.is_set():
            self.say()
            self.stop.wait(1.0)
"""
TOUCH = """
def beside():
    while True:
        os.utime("beat") if os.path.exists("beat") else open("beat", "w").close()
        time.sleep(1)
"""
TABLE = """
import csv, pathlib
def beside():
    while True:
        with open("metrics.csv", "a", newline="") as f:
            csv.writer(f).writerow([time.time(), stats["loss"]])
        pathlib.Path("beat").touch(); time.sleep(2)
"""
SNAPSHOT = """
def beside():
    while True:
        time.sleep(3)
        with lock:
            now = dict(stats)
        print(now)
"""


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (METRICS, "stop.wait"),
        (ALIVE, "sleep"),
        (MEMORY, "sleep"),
        (IN_PARTS, "self.stop.wait"),
        (SNAPSHOT, "sleep"),
        (TOUCH, "sleep"),
        (TABLE, "sleep"),
    ],
    ids=[
        "writes metrics",
        "says that it lives",
        "asks for the memory",
        "in methods",
        "takes a lock and gives it back",
        "touches a file",
        "writes a table",
    ],
)
def test_what_only_writes_and_asks_looks_on(body, at):
    assert looks_on(*threads(body, at=at)) is True


ACTS = {
    "ends what nobody has any more": "while True:\n        time.sleep(1)\n        gc.collect()",
    "kills": "while True:\n        time.sleep(1)\n        os.kill(os.getpid(), 9)",
    "kills later": "time.sleep(30)\n    os.kill(os.getpid(), 9)",
    "stops asking and then kills": "for _ in range(30):\n        time.sleep(1)\n    child.kill()",
    "kills where its loop was not left": (
        "for _ in range(30):\n        time.sleep(1)\n        if child.poll() is not None: break\n"
        "    else:\n        child.kill()"
    ),
    "asks until a time and then kills": "while time.time() < end:\n        time.sleep(1)\n    child.kill()",
    "leaves its loop and then kills": (
        "while True:\n        time.sleep(1)\n        if child.poll() is not None: break\n    child.kill()"
    ),
    "calls what it was given": "while True:\n        time.sleep(1)\n        self.on_timeout()",
    "calls a function that kills": (
        "while True:\n        time.sleep(1)\n        end_it()\ndef end_it():\n    os._exit(3)"
    ),
    "maps a function that kills": (
        "while True:\n        time.sleep(1)\n        list(map(end_it, jobs))\ndef end_it(job):\n    job.kill()"
    ),
    "asks for the greatest by one that kills": (
        "while True:\n        time.sleep(1)\n        max(jobs, key=end_it)\ndef end_it(job):\n    job.kill()"
    ),
    "hands one that kills over": (
        "while True:\n        time.sleep(1)\n        json.dumps({}, default=end_it)\ndef end_it(job):\n    job.kill()"
    ),
    "maps what it cannot see": "while True:\n        time.sleep(1)\n        list(map(check, jobs))",
    "calls what it cannot see": "while True:\n        time.sleep(1)\n        check_in(stats)",
    "sets an event": "while True:\n        time.sleep(1)\n        done.set()",
    "puts": "while True:\n        time.sleep(1)\n        q.put(1)",
    "takes, which makes room": "while True:\n        time.sleep(1)\n        q.get_nowait()",
    "gives back": "while True:\n        time.sleep(1)\n        lock.release()",
    "sleeps with a lock": "while True:\n        with lock:\n            time.sleep(1)",
    "sets what a loop may ask": "while True:\n        time.sleep(1)\n        stats['done'] = True",
    "sets an attribute": "while True:\n        time.sleep(1)\n        self.last = 1",
    "sets a global": "global over\n    while True:\n        time.sleep(1)\n        over = True",
    "fills what others ask": "while True:\n        time.sleep(1)\n        events.append(1)",
    "writes to a child": "while True:\n        time.sleep(1)\n        child.stdin.write('x')",
    "sends a signal": "while True:\n        time.sleep(1)\n        signal.raise_signal(2)",
    "sets a key of a store": "while rest:\n        time.sleep(1)\n    store.set('saved', 'yes')",
    "fills another name of what others ask": (
        "rows = self.rows\n    while True:\n        time.sleep(1)\n        rows.append(1)"
    ),
    "fills what it runs through": ("for rows in everybodys:\n        time.sleep(1)\n        rows.append(1)"),
    "counts in a store of its own making": (
        "store = torch.distributed.TCPStore('localhost', 1)\n    time.sleep(9)\n    store.add('saved', 1)"
    ),
    "passes a barrier": "while True:\n        time.sleep(1)\n        barrier.wait()",
}


def test_functions_that_let_nobody_on_may_be_handed_over():
    body = "def beside():\n    while 1:\n        time.sleep(1)\n        print(list(map(age, jobs)), max(a, key=len))\n"
    assert looks_on(*threads(body + "def age(job):\n    return time.time() - born[job]\n")) is True


@pytest.mark.parametrize("body", ACTS.values(), ids=ACTS)
def test_whatever_is_not_known_to_be_harmless_is_an_act(body):
    assert looks_on(*threads(f"def beside():\n    {body}\n")) is False


def test_a_sum_of_thousands_is_read():
    """Python counts how deep it is, and a tree of a long sum is as deep as the sum is long."""
    long = " + ".join(["1"] * 900)
    assert looks_on(*threads(f"def beside():\n    while True:\n        time.sleep(1)\n        n = {long}\n")) is True
    assert looks_on(*threads(f"def beside():\n    while True:\n        time.sleep(1 + {long})\n")) is True


ON_ITS_LINE = {
    "behind it": "def beside():\n    time.sleep(24); done.release()\n",
    "in a loop": "def beside():\n    while True:\n        time.sleep(24); done.release()\n",
    "two waits": "def beside():\n    time.sleep(24); time.sleep(1); done.release()\n",
    "on one line": "def beside():\n    while True: time.sleep(24); done.release()\n",
    "or": "def beside():\n    time.sleep(25) or done.set()\n",
    "either": "def beside(s):\n    done.release() if time.sleep(s) is None else None\n",
    "stored": "def beside():\n    global answer\n    answer = time.sleep(24)\n",
    "of another": "def beside(box):\n    box.answer = time.sleep(24)\n",
    "around it": "def beside():\n    q.put(time.sleep(24))\n",
    "over lines": "def beside():\n    q.put(\n        [time.sleep(24)]\n    )\n",
}


@pytest.mark.parametrize("body", ON_ITS_LINE.values(), ids=ON_ITS_LINE)
def test_what_else_stands_on_the_line_where_it_sleeps_is_still_to_come(body):
    assert looks_on(*threads(body)) is False


def test_the_wait_itself_is_the_call_that_the_next_frame_is_in():
    waits = (
        Frame(function="wait", file=f"{LIB}threading.py", line=9),
        Frame(function="beside", file="/src/t.py", line=3),
    )
    for line, expected in (("done.wait()", True), ("done.wait() or lock.release()", False), ("pause()", False)):
        body = f"import threading, os\ndef beside():\n    while True: {line}\n"
        assert looks_on(ThreadStack(tid=7, name="", frames=(*waits, *STARTED)), {"/src/t.py": body}) is expected, line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("q.put(load(2))", False), ("self.publish(load(2))", False), ("self.answer = load(2)", False),
        ("rows = load(2); q.put(rows)", False), ("rows = load(2)", True), ("rows = [load(2), load(3)]", True),
    ],
)  # fmt: skip
def test_what_a_caller_does_with_the_result_is_still_to_come(line, expected):
    head = "import time, queue\nq = queue.Queue()\ndef load(s):\n    time.sleep(s)\n\n"
    body = f"{head}def beside(self):\n    while True: {line}\n"
    frames = (Frame(function="load", file="/src/t.py", line=4), Frame(function="beside", file="/src/t.py", line=7))
    assert looks_on(ThreadStack(tid=7, name="", frames=(*frames, *STARTED)), {"/src/t.py": body}) is expected


@pytest.mark.parametrize(
    "body",
    [
        "time.sleep(70)",
        "time.sleep(70)\n    print(stats)",
        "for n in range(9): time.sleep(8)",
        "while time.time() < 9: time.sleep(1)",
        "while True:\n        time.sleep(70)\n        break",
        "while True:\n        time.sleep(70)\n        if stats: return",
    ],
)
def test_who_comes_out_of_its_loop_lets_go_of_what_it_had(body):
    """The end of a function closes a pipe, the end of a thread runs its finalizers, with no call that says so."""
    assert looks_on(*threads(f"def beside():\n    {body}\n")) is False


BY_ANOTHER_NAME = {
    "a decorator": "def announced(step): return step\n@announced\ndef tidy(): pass\n",
    "a decorator of another file": "from hooks import announced\n@announced\ndef tidy(): pass\n",
    "a decorator that is called": "def at(n): return done.set\n@at(9)\ndef tidy(): pass\n",
    "a class that decorates": "class cache:\n    def __init__(self, f): pass\n@cache\ndef tidy(): pass\n",
    "another function": "def tidy(): pass\ntidy = done.set\n",
    "another method": "def tidy(): pass\njob.tidy = done.set\n",
}


@pytest.mark.parametrize("defined", BY_ANOTHER_NAME.values(), ids=BY_ANOTHER_NAME)
def test_what_a_name_stands_for_may_be_more_than_the_function_of_that_name(defined):
    loop = "def beside():\n    while True:\n        time.sleep(1)\n        tidy()\n"
    assert looks_on(*threads(defined + loop)) is False
    cached = "import functools\n@functools.cache\ndef tidy(): pass\n"
    assert looks_on(*threads(cached + loop)) is True
    handed = loop.replace("beside()", "beside(tidy)")
    assert looks_on(*threads("def tidy(): pass\n" + handed)) is False


def test_a_method_of_an_object_that_has_no_name_is_followed_as_well():
    dice = "class Dice:\n    def throw(self): return 4\n"
    body = dice + "def beside():\n    while True:\n        time.sleep(1)\n        {}\n"
    assert looks_on(*threads(body.format("Dice().throw()"))) is not None
    assert looks_on(*threads(body.format("[Dice()][0].throw()"))) is not None


@pytest.mark.parametrize(
    "call",
    [
        "functools.reduce(step, [1, 2])",
        "re.sub('a', step, text)",
        "[item for item in feed]",
        "list(itertools.islice(feed, 1))",
        "connection = None",
        "list(itertools.starmap(done.set, [()]))",
    ],
)
def test_a_function_that_calls_what_it_is_handed_is_as_harmless_as_that(call):
    feed = "def produce():\n    yield 1\n    done.set()\nfeed = produce()\n"
    loop = "def beside():\n    while True:\n        time.sleep(1)\n"
    body = f"import functools, itertools, re\n{feed}{loop}        {call}\n"
    assert looks_on(*threads(body)) is False


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("logging.StreamHandler()", True),
        ("logging.StreamHandler(sys.stdout)", True),
        ("logging.StreamHandler(stream=open('log', 'w'))", True),
        ("logging.StreamHandler(a.makefile('w'))", False),
        ("logging.handlers.QueueHandler(q)", False),
        ("os.dup2(w, 1)", False),
    ],
)
def test_what_is_logged_or_printed_goes_where_the_program_sends_it(made, expected):
    body = f"handler = {made}\ndef beside():\n    while True:\n        time.sleep(1)\n        log.info('alive')\n"
    assert looks_on(*threads(body)) is expected


AN_EXCEPTION = {
    "finally": ("finally: done.set()", False),
    "caught, and then": ("except OSError: pass\n    done.set()", False),
    "caught": ("except OSError: done.set()", False),
    "caught for people": ("except OSError: print('gone')", True),
    "finally for people": ("finally: print('over')", True),
}


@pytest.mark.parametrize(("way", "expected"), AN_EXCEPTION.values(), ids=AN_EXCEPTION)
def test_what_an_exception_comes_to_that_ends_the_loop_is_still_to_come(way, expected):
    loop = "        while True:\n            time.sleep(3)\n            os.stat('lock')\n"
    assert looks_on(*threads(f"def beside():\n    try:\n{loop}    {way}\n")) is expected
    thread, source_of = threads(f"def beat():\n    try:\n        beside()\n    {way}\ndef beside():\n    if 1:\n{loop}")
    line = next(n for n, text in enumerate(source_of["/src/train.py"].splitlines(), 1) if text == "        beside()")
    outer = Frame(function="beat", file="/src/train.py", line=line)
    assert looks_on(ThreadStack(tid=7, name="", frames=(thread.frames[0], outer, *STARTED)), source_of) is expected


ASKS = {
    "not stop.wait(5)": True,
    "child.poll() is None": True,
    "not connection.poll(3)": False,
    "lease.is_alive()": False,
}


@pytest.mark.parametrize(("asks", "expected"), ASKS.items())
def test_a_question_is_what_an_event_a_thread_or_a_process_answers(asks, expected):
    lease = "class Lease:\n    def is_alive(self): return time.monotonic() < 48\nlease = Lease()\n"
    body = f"{lease}def beside():\n    while {asks}:\n        time.sleep(3)\n"
    assert looks_on(*threads(body)) is expected


TEMPLATES = {
    "a field": "from dataclasses import dataclass\n@dataclass\nclass Hooks:\n    info: object\n",
    "an attribute": "class Hooks:\n    def __init__(self, info): self.info = info\n",
    "a formatter": "class Counts(logging.Formatter):\n    def format(self, record): done.set()\n",
    "a rotator": "handler.rotator = ship\n",
    "a method put in": "handler.emit = ship\n",
    "a stream for all": "logging.basicConfig(stream=a.makefile('w'))\n",
    "a descriptor": "class Field:\n    def __get__(self, of, kind): done.set()\n",
}


@pytest.mark.parametrize("defined", TEMPLATES.values(), ids=TEMPLATES)
def test_what_a_well_known_module_calls_in_its_turn_may_be_the_programs_own(defined):
    assert (
        looks_on(*threads(defined + "def beside():\n    while True:\n        time.sleep(4)\n        log.info(1)\n"))
        is False
    )


def test_a_parameter_may_have_the_name_of_a_module():
    assert (
        looks_on(*threads("def beside(json):\n    while True:\n        time.sleep(4)\n        json.dumps(1)\n"))
        is False
    )


@pytest.mark.parametrize(("own", "expected"), [("", True), ("class suppress: pass\n", False)])
def test_a_context_manager_is_what_was_imported_and_not_what_has_its_name(own, expected):
    imports = "" if own else "from contextlib import suppress\n"
    body = f"{imports}{own}def beside():\n    with suppress(OSError):\n        while True: time.sleep(1)\n"
    assert looks_on(*threads(body)) is expected


def test_what_came_before_does_not_count():
    assert looks_on(
        *threads("def beside():\n    q.put(1)\n    while True:\n        time.sleep(5)\n        print(stats)\n")
    )


def test_a_loop_that_only_its_child_can_end_is_not_gone_on_behind():
    body = "def beside():\n    while child.poll() is None:\n        time.sleep(1)\n    child.kill()\n"
    assert looks_on(*threads(body)) is True


def test_a_caller_that_comes_again_is_followed_into_what_it_calls():
    body = """
def beside():
    if late(): os._exit(1)
    time.sleep(1)
def late(): return False
def main():
    while True:
        beside()
"""
    thread, source_of = threads(body)
    line = next(n for n, text in enumerate(source_of["/src/train.py"].splitlines(), 1) if text == "        beside()")
    outer = Frame(function="main", file="/src/train.py", line=line)
    called = ThreadStack(tid=7, name="", frames=(thread.frames[0], outer, *STARTED))
    assert looks_on(called, source_of) is False
    harmless = {name: text.replace("os._exit(1)", "pass") for name, text in source_of.items()}
    assert looks_on(called, harmless) is True


@pytest.mark.parametrize(
    "by",
    [
        (Frame(function="run", file=f"{LIB}concurrent/futures/thread.py", line=1), *STARTED),
        (Frame(function="loop", file="/venv/lib/python3.11/site-packages/schedule/loop.py", line=1), *STARTED),
    ],
    ids=["a pool's worker, whose result somebody waits for", "called by a package"],
)
def test_of_what_somebody_else_calls_nothing_is_said(by):
    assert looks_on(*threads(ALIVE, by=by)) is None


def test_what_acts_does_so_whoever_called_it():
    """A trainer of a package calls the function that gives its child so many seconds."""
    by = Frame(function="fit", file="/venv/lib/python3.11/site-packages/lightning/trainer.py", line=9)
    body = "def beside():\n    for _ in range(20):\n        child.join(1)\n    child.kill()\n"
    assert looks_on(*threads(body, at="child.join", by=(by,))) is False


HIDDEN = {
    "a handler": "class Opens(logging.Handler):\n    def emit(self, record):\n        done.set()\n",
    "a text": "class Loss:\n    def __format__(self, how):\n        done.set()\n        return 'x'\n",
    "a length": "class Jobs:\n    def __len__(self):\n        done.set()\n        return 3\n",
    "a property": "class Job:\n    @property\n    def loss(self):\n        child.kill()\n",
    "the end of a local": "class Lease:\n    def __del__(self):\n        lock.release()\n",
    "a writer": "class Log:\n    def info(self, *what):\n        done.set()\n",
    "the hook of a thread that fails": "threading.excepthook = lambda what: done.set()\n",
}
LOGS = """
def beside():
    while True:
        time.sleep(2)
        log.info(f"{job.loss:.3f}")
"""


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
def test_what_a_known_name_may_come_to_in_the_same_file_is_read(hidden):
    assert looks_on(*threads(LOGS)) is True
    assert looks_on(*threads(hidden + LOGS)) is False


def test_what_cannot_be_read_may_act_and_of_what_is_not_the_programs_own_nothing_is_said():
    thread, source_of = threads(ALIVE)
    assert looks_on(thread, {}) is False
    assert looks_on(thread, {"/src/train.py": "def ("}) is False
    assert looks_on(ThreadStack(tid=7, name="", frames=STARTED), source_of) is None


def test_a_child_is_read_up_to_where_it_was_started_and_not_what_its_parent_had_on_its_stack():
    started = (
        Frame(function="Process.run", file=f"{LIB}multiprocessing/process.py", line=1),
        Frame(function="Process._bootstrap", file=f"{LIB}multiprocessing/process.py", line=2),
        Frame(function="main", file="/src/other.py", line=3),
    )
    assert looks_on(*threads(ALIVE, by=started)) is True


def test_one_looks_on_that_does_in_every_sample_and_acts_that_does_in_one():
    thread, source_of = threads(ALIVE)
    acting, source_of_acting = threads("def beside():\n    time.sleep(1)\n    os._exit(1)\n")

    def sample(stack, texts):
        taken = StackSample(id="s", source="py-spy", native=False, t_s=1.0, rank=0, pid=1, threads=(stack,))
        return of_sample(taken, texts)

    on, off = sample(thread, source_of), sample(acting, source_of_acting)
    assert (onlookers_of([on, on]), actors_of([on, on])) == ({7}, frozenset())
    assert (onlookers_of([on, off]), actors_of([on, off])) == (frozenset(), {7})


def plain(body):
    thread, source_of = threads(body)
    taken = StackSample(id="s", source="py-spy", native=False, t_s=1.0, rank=0, pid=1, threads=(thread,))
    sample = of_sample(taken, source_of)
    assert onlookers_of([sample]) == {7}  # by its own file it looks on in any case
    return plain_onlookers_of([sample]) == {7}


@pytest.mark.parametrize("body", [ALIVE, MEMORY])
def test_an_onlooker_is_plain_where_its_file_uses_its_own_and_well_known_packages(body):
    assert plain(body)
    assert plain(f"{body}torch.backends.cuda.matmul.allow_tf32 = True\nmodel.eval()\nre.compile('x')\n")


WAYS = {
    "another file": "from mylib import meters\n",
    "a module of the program": "import mylib.metrics\n",
    "a file beside it": "from .metrics import meters\n",
    "all names of another": "from . import *\n",
    "a function in the place of a known one": "print = make_printer()\n",
    "a stream of its own": "sys.stdout = make_stream()\n",
    "a filter": "log.addFilter(lets_on)\n",
    "a filter in its list": "log.filters.append(lets_on)\n",
    "a handler that a text names": 'logging.config.dictConfig({"handlers": {"own": {"class": "soak.Soak"}}})\n',
    "a handler that a text names, imported": "from logging.config import dictConfig\ndictConfig(read())\n",
    "a module that a text names": "from importlib import import_module\nimport_module(name)\n",
    "the same by a builtin": "__import__(name).start()\n",
    "a codec": "import codecs\ncodecs.register(lets_on)\n",
    "a profiler": "threading.setprofile(lets_on)\n",
    "a text that is run": "exec(text)\n",
    "what is set by name": "setattr(log, 'info', lets_on)\n",
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_an_onlooker_is_not_plain_where_others_may_stand_behind_a_known_name(way):
    assert not plain(way + ALIVE)


@pytest.mark.parametrize(
    ("loop", "says", "endless"),
    [
        ("while True:", "'alive'", True),
        ("while True:", "stats['loss']", True),
        ("while True:", "100 * n / 8", True),
        ("while not stop.wait(5):", "'alive'", True),
        ("while True:", "names[n]", False),
        ("while True:", "'%d' % n", True),
        ("while True:", "n / left", False),
    ],
)
def test_an_onlooker_is_endless_in_a_loop_that_does_not_end_by_itself(loop, says, endless):
    thread, source_of = threads(f"def beside():\n    {loop}\n        time.sleep(1)\n        log.info({says})\n")
    taken = StackSample(id="s", source="py-spy", native=False, t_s=1.0, rank=0, pid=1, threads=(thread,))
    sample = of_sample(taken, source_of)
    assert (sample.onlookers, sample.endless_onlookers) == ((7,), (7,) if endless else ())


@pytest.mark.parametrize(
    ("loop", "launches"),
    [
        ("while child.poll() is None:", True),
        ("while any(p.is_alive() for p in procs):", True),
        ("while not job.done():", False),  # it may run anywhere
        ("while not stop.is_set():", False),
        ("while not stop.wait(5):", False),
        ("while True:", False),
        ("while child.exitcode is None:", True),
        ("while time.time() < end:", False),
    ],
)
def test_a_launcher_does_nothing_until_a_process_ends(loop, launches):
    assert launchers(f"def beside():\n    {loop}\n        time.sleep(1)\n") is launches


def launchers(body, *, head=HEAD):
    """Whether the thread that sleeps in ``body`` is a launcher."""
    thread, source_of = threads(body)
    source_of = {name: text.replace(HEAD, head) for name, text in source_of.items()}
    sample = StackSample(id="s", source="py-spy", native=False, t_s=1.0, rank=0, pid=1, threads=(thread,))
    return of_sample(sample, source_of).launchers == (7,)


STOPS = "def beside():\n    while True:\n        time.sleep(1)\n        if child.poll(): child.kill()\n"


@pytest.mark.parametrize(
    ("loop", "behind", "supervises"),
    [
        ("while child.poll() is None:", "done.set()", True),
        ("while child.poll() is None:", "print('the server has ended')", False),
        ("while any(p.poll() is None for p in procs):", "q.put(None)", True),
        ("while not stop.wait(5):", "done.set()", False),
        ("while True:", "done.set()", False),
    ],
)
def test_a_supervisor_acts_once_its_process_has_ended(loop, behind, supervises):
    body = f"def beside():\n    {loop}\n        time.sleep(2)\n    {behind}\n"
    (thread, source_of) = threads(body, at="stop.wait" if "stop.wait" in loop else "time.sleep(2)")
    sample = StackSample(id="s", source="py-spy", native=False, t_s=1.0, rank=0, pid=7, threads=(thread,))
    marked = of_sample(sample, source_of)
    assert (marked.onlookers, marked.supervisors) == ((7,), (7,) if supervises else ())


@pytest.mark.parametrize(
    ("made", "supervises"),
    [("multiprocessing.Event()", True), ("threading.Event()", False), ("multiprocessing.Manager().Event()", True)],
)
def test_a_supervisor_acts_once_an_event_is_set_that_processes_share(made, supervises):
    body = (
        f"import multiprocessing\ngo = {made}\ndef beside():\n    while not go.wait(3):\n        pass\n    done.set()\n"
    )
    (thread, source_of) = threads(body, at="go.wait")
    sample = StackSample(id="s", source="py-spy", native=False, t_s=1.0, rank=0, pid=7, threads=(thread,))
    assert of_sample(sample, source_of).supervisors == ((7,) if supervises else ())


KEEPS_THE_CODE = """
def beside():
    running = dict(enumerate(procs))
    while running:
        for rank, one in list(running.items()):
            try:
                code = one.wait(timeout=1)
            except subprocess.TimeoutExpired:
                continue
            del running[rank]
"""


@pytest.mark.parametrize(("head", "launches"), [("", True), ("class Job:\n    def wait(self): return Pipe()\n", False)])
def test_a_launcher_may_give_the_answer_a_name(head, launches):
    """What the name had before is an answer, too: an exit code, or none."""
    thread, source_of = threads(head + KEEPS_THE_CODE, at="one.wait")
    sample = StackSample(id="s", source="py-spy", native=False, t_s=1.0, rank=0, pid=1, threads=(thread,))
    assert of_sample(sample, source_of).launchers == ((7,) if launches else ())


def test_what_a_launcher_does_once_a_process_has_failed_is_not_what_it_does_now():
    assert launchers(STOPS)
    assert not launchers(STOPS, head="\n" * HEAD.count("\n"))  # of a file that starts no process
    assert not launchers(STOPS + "        child.kill()\n")
    assert not launchers(STOPS + "        self.check()\n")
    assert launchers(STOPS + "        check()\ndef check():\n    print(stats)\n")
    assert launchers(STOPS + "        check()\ndef check():\n    if child.poll(): raise RuntimeError\n")
    assert not launchers(STOPS + "        check()\ndef check():\n    if time.time() > end: raise TimeoutError\n")
    assert not launchers(STOPS + "        check()\ndef check():\n    assert time.time() < end\n")
    assert looks_on(*threads(STOPS)) is False  # it acts all the same, once one has


@pytest.mark.parametrize(
    "body",
    [
        "if pipe.poll(): handle(pipe.recv())",
        "if pipe.poll(1): handle(pipe)",
        "if job.done(): handle(job)",
        "if done.is_set(): handle(stats)",
    ],
)
def test_who_hears_of_others_is_no_launcher_though_it_asks_a_child_too(body):
    """A thread that takes messages lets on whoever waits for what is made of them."""
    assert not launchers(f"def beside():\n    while child.poll() is None:\n        time.sleep(1)\n        {body}\n")
    assert looks_on(*threads(f"def beside():\n    while True:\n        time.sleep(1)\n        {body}\n")) is False


def test_who_takes_from_a_queue_with_a_limit_acts_and_is_no_launcher():
    body = (
        "def beside():\n    while True:\n        try: item = q.get(timeout=1)\n"
        "        except queue.Empty: continue\n        done.set()\n"
    )
    thread, source_of = threads(body, at="q.get")
    assert looks_on(thread, source_of) is False
    sample = StackSample(id="s", source="py-spy", native=False, t_s=1.0, rank=0, pid=1, threads=(thread,))
    assert of_sample(sample, source_of).launchers == ()


SPAWNS = """
def beside():
    tries = 0
    {loop}
        {body}
    {behind}
"""


@pytest.mark.parametrize(
    ("loop", "body", "behind", "expected"),
    [
        ("while not context.join(timeout=5):", "print('waiting')", "print('done')", None),
        ("while not context.join(timeout=5):", "tries += 1", "[p.kill() for p in context.processes]", None),
        ("while not context.join(timeout=5) and tries < 5:", "tries += 1", "[p.kill() for p in ps]", False),
        ("while not context.join(timeout=5):", "give_up(tries)", "print('done')", False),
        ("for batch in loader.join():", "train(batch)", "save()", None),
    ],
)
def test_a_package_that_is_asked_in_a_loop_may_be_given_up(loop, body, behind, expected):
    by = (Frame(function="join", file="/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line=9),)
    (thread, source_of) = threads(SPAWNS.format(loop=loop, body=body, behind=behind), at=".join(", by=())
    thread = ThreadStack(tid=7, name="", frames=(*by, *thread.frames))
    assert looks_on(thread, source_of) is expected


@pytest.mark.parametrize(
    ("line", "sets"),
    [
        ("signal.alarm(25)", True),
        ("signal.setitimer(signal.ITIMER_REAL, 25)", True),
        ("from signal import alarm as later; later(25)", True),
        ("from signal import *; alarm(25)", True),
        ("from pager import *; alarm(25)", False),
        ("faulthandler.dump_traceback_later(25, exit=True)", True),
        ("faulthandler.dump_traceback_later(25)", False),
        ("faulthandler.dump_traceback_later(25, exit=False)", False),
        ("pager.alarm('loss is nan')", False),
        ("import ctypes; ctypes.CDLL(None).alarm(25)", True),
        ("import ctypes; getattr(ctypes.CDLL(None), 'setitimer')(0, later, None)", True),
        ("from cffi import FFI; FFI().cdef('unsigned alarm(unsigned seconds);')", True),
        ("import ctypes; ctypes.CDLL(None).usleep(25)", False),
        ("sys.settrace(out_of_time)", True),
        ("threading.setprofile(count)", True),
    ],
)
def test_an_alarm_that_the_kernel_does_not_show_stands_in_the_source(line, sets):
    assert sets_an_alarm({"/src/train.py": ALIVE, "/src/limits.py": f"{line}\n"}) is sets


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("path.write_text(manager.address)", {"address"}),
        ("socket.send_fds(other, [b'x'], [end])", {"send_fds"}),
        ("from socket import send_fds", {"send_fds"}),
        ("other.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, ends)])", {"SCM_RIGHTS"}),
        ("other.send(b'x')", set()),
    ],
)
def test_what_a_program_hands_out_stands_in_its_source(line, words):
    assert words_that_hand_out({"/src/train.py": ALIVE, "/src/serve.py": f"{line}\n"}) == words


@pytest.mark.parametrize(
    ("file", "expected"),
    [("threading.py", True), ("sched.py", False), ("asyncio/base_events.py", False), ("socketserver.py", False)],
)
def test_what_sleeps_in_a_loop_of_the_library_that_calls_back_acts(file, expected):
    thread, source_of = threads("def beside():\n    while True: scheduler.run()\n", at="scheduler.run", by=())
    inner = Frame(function="run", file=f"{LIB}{file}", line=9)
    thread = ThreadStack(tid=7, name="", frames=(inner, *thread.frames, *STARTED))
    assert looks_on(thread, source_of) is expected


COUNTS = """
class Meter(Thread):
    def __init__(self):
        self.rows = self.peak = 0
    def beside(self):
        while True:
            time.sleep(2)
            self.rows += 1
            self.peak = max(self.peak, self.rows)
            print(f"{self.rows} {self.peak}", flush=True)
"""


def test_an_attribute_that_only_its_own_function_reads_is_as_good_as_a_local():
    assert looks_on(*threads(COUNTS)) is True


READ = {
    "by the main thread": "while meter.rows < 13: time.sleep(1)\n",
    "by another method": "    def is_over(self):\n        return self.rows > 12\n",
    "by what the class defines for it": "    rows = Watched()\n",
    "by what any attribute is set by": "    def __setattr__(self, name, value):\n        done.set()\n",
    "by another file": "from mylib import meters\n",
}


@pytest.mark.parametrize("by", READ.values(), ids=READ)
def test_an_attribute_that_another_may_read_is_seen(by):
    assert looks_on(*threads(COUNTS + by)) is False


def test_an_attribute_of_what_is_more_than_a_thread_is_seen():
    assert looks_on(*threads(COUNTS.replace("Meter(Thread)", "Meter(HasTraits)"))) is False


DROPPED = {
    "a-name": """
ends = [socket.socketpair()[1]]
def beside():
    turns, end = 0, ends.pop()
    while True:
        time.sleep(3)
        turns += 1
        if turns == 24:
            end = turns
""",
    "a-list": """
ends = [socket.socketpair()[1]]
def beside():
    turns, rows = 0, list(ends)
    ends.clear()
    while True:
        time.sleep(3)
        turns += 1
        if turns == 24:
            rows = []
""",
    "what-a-list-had": """
def beside():
    rows = [child.stdin]
    while True:
        time.sleep(3)
        rows.clear()
child.stdin = None
""",
    "an-attribute": """
from threading import Thread
class Beat(Thread):
    def __init__(self, end):
        self.end, self.turns = end, 0
    def run(self):
        while True:
            time.sleep(3)
            self.turns += 1
            self.end = self.end if self.turns < 24 else 0
Beat(socket.socketpair()[1]).start()
""",
    "what-another-file-made": """
import other
def beside():
    turns, job = 0, other.Job()
    while True:
        time.sleep(3)
        turns += 1
        job = turns
""",
}


@pytest.mark.parametrize("body", DROPPED.values(), ids=DROPPED)
def test_the_last_reference_to_a_thing_may_be_let_go_of_where_a_name_gets_another_value(body):
    assert looks_on(*threads("import socket\n" + body)) is False


def test_numbers_texts_and_what_another_name_still_has_are_of_no_consequence():
    body = """
def size(x):
    x = x / 1e6
    return f"{x:.1f} MB"
def beside(procs):
    last, peak = time.time(), 0
    state = {}
    while True:
        time.sleep(3)
        now = time.time()
        rate, last = stats["n"] / (now - last), now
        alive = [p for p in procs if p.is_alive()]
        first = alive[0] if alive else None
        peak = max(peak, me.memory_info().rss)
        text = size(peak).split()[0]
        row = {"rate": rate, "alive": len(alive)}
        row.update(gpu=torch.cuda.memory_allocated() / 2**20)
        state["last"] = now
        state.clear()
        print(json.dumps(row), text)
threading.Thread(target=beside, args=(threads,)).start()
"""
    assert looks_on(*threads(body)) is True


def test_what_a_progress_bar_writes_is_for_people():
    assert looks_on(*threads("from tqdm import tqdm\n" + ALIVE.replace("log.info(", "tqdm.write("))) is True


ELSEWHERE = {
    "a handler of records": "class Soak(logging.Handler):\n    def emit(self, record):\n        gate.set()\n",
    "a stream": "import sys\nclass Tee:\n    pass\ndef main():\n    sys.stdout = tee = Tee()\n",
    "a finalizer": "import weakref\nweakref.finalize(engine, gate.set)\n",
    "a finalizer by its name": "from weakref import finalize\nfinalize(engine, gate.set)\n",
    "a filter": "log.addFilter(lets_on)\n",
    "a filter in its list": "log.filters.append(lets_on)\n",
    "a handler that a text names": 'logging.config.dictConfig({"handlers": {"own": {"class": "soak.Soak"}}})\n',
    "a handler that a text names, imported": "from logging.config import dictConfig\ndictConfig(read())\n",
    "a module that a text names": "from importlib import import_module\nimport_module(name)\n",
    "the same by a builtin": "__import__(name).start()\n",
    "a text of its own": "class Loss:\n    def __repr__(self):\n        gate.set()\n",
}


@pytest.mark.parametrize("other", ELSEWHERE.values(), ids=ELSEWHERE)
def test_another_file_of_the_program_may_stand_between(other):
    """``log.info`` of one file comes to the handler that another one made."""
    assert stand_between({"/src/beat.py": HEAD + ALIVE, "/src/main.py": other})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tqdm(rows, file=Stream())", True),
        ("tqdm(rows, file=sys.stdout)", False),
        ("tqdm(rows)", False),
        ("sys.stderr = Tee(sys.stderr)", True),
        ("sys.stderr = sys.stdout", False),
        ("sys.stdout = open('log.txt', 'w')", False),
        ("with contextlib.redirect_stderr(stream): train()", True),
        ("class Bar(tqdm): pass", True),
        ("class Bar: pass", False),
        ("class Speed(ProgressColumn): pass", True),
        ("Progress(console=Console(file=Stream()))", True),
        ("Progress(console=Console())", False),
        ("Live(get_renderable=table)", True),
    ],
)
def test_a_progress_bar_writes_to_a_stream_or_draws_by_a_class_that_the_program_makes(line, expected):
    bars = "from tqdm import tqdm\nfrom rich.progress import ProgressColumn, Progress"
    source = f"import contextlib, sys\n{bars}\n{line}\n"
    assert are_written_to({"/src/beat.py": HEAD + ALIVE, "/src/main.py": source}) is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("exec(compile(text, 'train.py', 'exec'))", True),
        ("exec(compile(open(path).read().replace('a', 'b'), path, 'exec'))", True),
        ("exec(compile(open(path).read(), path, 'exec'))", False),
        ("exec(compile(pathlib.Path('a.py').read_text(), 'a.py', 'exec'))", False),
        ("eval(compile(text, '<formula>', 'eval'))", False),
        ("re.compile(text)", False),
        ("from torch import compile; compile(model)", False),
    ],
)
def test_what_is_compiled_as_if_it_stood_in_a_file_is_not_what_stands_there(line, expected):
    assert compile_texts({"/src/beat.py": HEAD + ALIVE, "/src/main.py": f"{line}\n"}) is expected


def test_files_that_put_nothing_behind_what_others_call_stand_between_nobody():
    harmless = "import logging\nid = 3\nclass Data:\n    def __len__(self):\n        return len(self.rows)\n"
    assert not stand_between({"/src/beat.py": HEAD + ALIVE, "/src/main.py": harmless})
    assert stand_between({"/src/beat.py": HEAD + ALIVE, "/src/statistics.py": harmless})  # not the one that is known


def test_a_class_of_another_file_may_take_over_what_one_calls_of_itself():
    beats = "class Beat(threading.Thread):\n    def on_beat(self): pass\n    def run(self): self.on_beat()\n"
    takes = "from beat import Beat\nclass Stops(Beat):\n    def {}(self): done.set()\n"
    assert stand_between({"/src/beat.py": HEAD + beats, "/src/main.py": takes.format("on_beat")})
    assert not stand_between({"/src/beat.py": HEAD + beats, "/src/main.py": takes.format("forward")})


@pytest.mark.parametrize(
    ("file", "function"), [("sched.py", "run"), ("<frozen importlib._bootstrap>", "_find_and_load")]
)
def test_a_thread_whose_own_code_the_library_called_does_what_the_library_does_next(file, function):
    """``sched.run`` has more to do after this action, and an import lets its lock go: others may wait for either."""
    body = "def act():\n    time.sleep(5)\ndef beside():\n    s.run()\n"
    source = HEAD + body
    lines = source.splitlines()
    frames = (
        Frame(function="act", file="/src/train.py", line=lines.index("    time.sleep(5)") + 1),
        Frame(function=function, file=f"{LIB}{file}" if file.endswith(".py") else file, line=9),
        Frame(function="beside", file="/src/train.py", line=lines.index("    s.run()") + 1),
        *STARTED,
    )
    assert looks_on(ThreadStack(tid=7, name="", frames=frames), {"/src/train.py": source}) is not True


OF_ANYBODY = {
    "an import of another file of the program": "from bus import bus\ndef beside():\n    while True:\n        {}\n",
    "an import of a file beside it": "from . import time as bus\ndef beside():\n    while True:\n        {}\n",
    "made by a class of another file": (
        "from bus import Bus\nbus = Bus(done, 75)\ndef beside():\n    while True:\n        {}\n"
    ),
    "of a class that inherits from one of another file": (
        "from bus import Bus\nclass Log(Bus): pass\nbus = Log(done)\ndef beside():\n    while True:\n        {}\n"
    ),
    "a parameter": "def beside(bus):\n    while True:\n        {}\n",
    "a parameter that its caller has made elsewhere": (
        "from bus import Bus\ndef beside(bus):\n    while True:\n        {}\n"
        "threading.Thread(target=beside, args=(Bus(done),)).start()\n"
    ),
    "set anew to what is not clear": (
        "bus = Gauge('a', 'b')\nbus = find()\ndef beside():\n    while True:\n        {}\n"
    ),
    "an item of what others filled": "def beside():\n    for bus in buses:\n        {}\n",
    "an attribute of unclear origin": (
        "class Beat:\n    def __init__(self, bus):\n        self.bus = bus\n    def beside(self):\n"
        "        bus = self.bus\n        while True:\n            {}\n"
    ),
}
CALLS = ["bus.poll()", "bus.info('alive')", "bus.done()", "bus.inc()", "bus.observe(1)", "bus.log(1)", "bus.set(42)"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("body", OF_ANYBODY.values(), ids=OF_ANYBODY)
def test_a_method_on_what_may_be_anybodys_object_is_an_act_whatever_its_name(body, call):
    assert looks_on(*threads(body.format(f"time.sleep(1); {call}"))) is False


def test_a_worker_that_does_its_own_ending_is_no_onlooker():
    """As in Go: the main thread waits for ``done()`` of a group that another file has made."""
    assert looks_on(*threads("def beside(wg):\n    time.sleep(90)\n    wg.done()\n")) is False
    assert looks_on(*threads("def beside(promise):\n    time.sleep(90)\n    promise.set(42)\n")) is False


OF_PACKAGES = {
    "handed to a thread": (
        "def beside(stop, every):\n    while not stop.is_set():\n        time.sleep(every)\n        log.info('alive')\n"
        "threading.Thread(target=beside, args=(threading.Event(), 2.0)).start()\n"
    ),
    "handed to a function": (
        "def beside(workers):\n    while True:\n        time.sleep(1)\n        print([w.is_alive() for w in workers])\n"
        "beside(procs)\n"
    ),
    "handed to the class": (
        "class Beat(threading.Thread):\n    def __init__(self, stop):\n        super().__init__()\n"
        "        self.halt = stop\n    def run(self):\n        while not self.halt.is_set():\n"
        "            time.sleep(1)\nBeat(stop).start()\n"
    ),
    "by its annotation": (
        "def beside(log: logging.Logger):\n    while True:\n        time.sleep(1)\n        log.info('alive')\n"
    ),
    "of a function around it": (
        "def main():\n    mine = torch.nn.Linear(2, 2)\n    def beside():\n        while True:\n"
        "            time.sleep(1)\n            print(mine.count(1))\n"
    ),
    "filled bit by bit": (
        "jobs = []\nfor n in range(4):\n    job = subprocess.Popen(str(n))\n    jobs.append((n, job))\n"
        "def beside():\n    while True:\n        time.sleep(1)\n        print([job.poll() for n, job in jobs])\n"
    ),
    "by name": (
        "jobs = {}\njobs['a'] = subprocess.Popen('a')\n"
        "def beside():\n    while True:\n        time.sleep(1)\n"
        "        for name, job in jobs.items():\n            print(name.strip(), job.poll())\n"
    ),
    "set from itself": (
        "def beside():\n    while True:\n        time.sleep(1)\n        line = 'a b'\n        line = line.strip()\n"
        "        print(line.upper())\n"
    ),
    "a progress bar": (
        "from tqdm import tqdm\nbar = tqdm(range(9))\n"
        "def beside():\n    while True:\n        time.sleep(1)\n        bar.set_postfix(t=time.time())\n"
    ),
}


@pytest.mark.parametrize("body", OF_PACKAGES.values(), ids=OF_PACKAGES)
def test_what_a_well_known_package_made_is_followed_to_where_it_was_made(body):
    assert looks_on(*threads(body)) is True


def test_a_deep_expression_is_no_known_object():
    chain = "log" + ".labels()" * 200
    assert (
        looks_on(*threads(f"def beside():\n    while True:\n        time.sleep(1)\n        {chain}.info(1)\n")) is False
    )


LETS_ON_BY_A_FILE = {
    "prints into a pipe of a child": "print('stop', file=child.stdin, flush=True)",
    "prints into a file that it was handed": "print('stop', file=orders)",
    "json into a child": "json.dump({}, child.stdin)",
    "json by name": "json.dump({}, fp=child.stdin)",
    "rows into a child": "csv.writer(child.stdin).writerow([1])",
    "copies into a child": "shutil.copyfileobj(open('orders'), child.stdin)",
    "an array into a child": "numpy.save(child.stdin, numpy.zeros(3))",
    "writes to what it was handed": "orders.write('stop')",
    "closes what it was handed": "orders.close()",
    "opens a number": "open(child.stdin.fileno(), 'w').write('stop')",
    "opens what it was handed": "open(orders, 'w').close()",
    "opens what the command names": "open(sys.argv[1], 'w').write('stop')",
}


@pytest.mark.parametrize("call", LETS_ON_BY_A_FILE.values(), ids=LETS_ON_BY_A_FILE)
def test_what_may_be_a_pipe_is_written_to_for_somebody(call):
    body = f"import csv, shutil, numpy\ndef beside(orders):\n    while True:\n        time.sleep(1)\n        {call}\n"
    assert looks_on(*threads(body)) is False


OPENED = {
    "a pipe by its number": "r, w = os.pipe()\norders = open(w, 'w')\n",
    "a pipe that has a name": "os.mkfifo('orders')\norders = open('orders', 'w')\n",
    "a file that is a lock, too": "import fcntl\norders = open('orders', 'w')\nfcntl.flock(orders, fcntl.LOCK_EX)\n",
    "made by a function that is not seen": "orders = connect('a')\n",
}
HARMLESS = {
    "a file by its name": "orders = open('metrics.csv', 'a')\n",
    "a name in a folder": "orders = open(os.path.join(sys.argv[1], 'metrics.csv'), 'a')\n",
    "a text": "orders = open(f'{sys.argv[1]}/metrics.csv', 'a')\n",
    "a standard stream": "orders = sys.stderr\n",
}


@pytest.mark.parametrize(
    ("how", "expected"),
    [*((one, False) for one in OPENED.values()), *((one, True) for one in HARMLESS.values())],
    ids=[*OPENED, *HARMLESS],
)
def test_where_the_file_was_opened_tells_whether_somebody_waits_for_it(how, expected):
    for call in ("print('stop', file=orders, flush=True)", "orders.write('stop')", "json.dump({}, orders)"):
        body = f"{how}def beside():\n    while True:\n        time.sleep(1)\n        {call}\n"
        assert looks_on(*threads(body)) is expected, call


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("open('metrics', 'w')", True), ("open(path, 'w')", False), ("open(w, 'w')", False),
        ("tempfile.NamedTemporaryFile()", False),
    ],
)  # fmt: skip
def test_whoever_sleeps_with_a_file_may_end_a_pipe_or_give_back_a_lock_with_it(file, expected):
    body = f"r, w = os.pipe()\ndef beside(path):\n    with {file} as f:\n        while True:\n            "
    assert looks_on(*threads(body + "time.sleep(1)\n")) is expected
    assert looks_on(*threads("import fcntl\n" + body + "time.sleep(1)\n")) is False


SPECIAL = {
    "__iter__": "for item in feed: pass",
    "__next__": "print([item for item in feed])",
    "__add__": "feed = feed + 1",
    "__radd__": "n = 1 + feed",
    "__iadd__": "feed += 1",
    "__neg__": "n = -feed",
    "__getitem__": "print(feed['a'])",
    "__exit__": "with feed: pass",
    "__enter__": "with feed: pass",
    "__reversed__": "print(list(feed))",
    "__bool__": "print(1 if feed else 2)",
    "__contains__": "print(1 in feed)",
}


@pytest.mark.parametrize("method", SPECIAL)
def test_an_operation_may_call_a_method_of_a_class_of_the_same_file(method):
    made = f"class Feed:\n    def {method}(self, *what):\n        child.kill()\ndef beside():\n    feed = Feed()\n"
    turns = f"        time.sleep(1)\n        {SPECIAL[method]}\n"
    assert looks_on(*threads(f"{made}    while True:\n{turns}")) is False
    assert not launchers(f"{made}    while child.poll() is None:\n{turns}")


def test_a_data_set_of_the_same_file_is_not_what_a_heartbeat_works_on():
    data = (
        "class Data:\n    def __getitem__(self, n):\n        return load(n)\n    def __len__(self):\n        return 9\n"
    )
    body = (
        "    while True:\n        time.sleep(1)\n        log.info('%s', stats['loss'])\n        n = 1 + time.time()\n"
    )
    for before in ("def beside():\n", "def beside():\n    n = 3\n"):
        assert looks_on(*threads(data + "stats['loss'] = 0.3\n" + before + body)) is True


RAISES = {
    "os.stat('lock')": True,
    "open('lock').close()": True,
    "n = int(stats['n'])": True,
    "n = float(stats['n'])": True,
    "n = json.loads('3')": True,
    "look()\ndef look(): os.stat('lock')": True,
    "look()\ndef look(): print(stats)": False,
    "n = max(1, 2)": False,
    "n = max(stats)": True,
    "try: os.stat('lock')\n        except OSError: pass": False,
    "try: os.stat('lock')\n        except ValueError: pass": True,
    "try: n = int(stats['n'])\n        except OSError: pass": True,
    "try: n = int(stats['n'])\n        except Exception: pass": False,
    "try: pass\n        except OSError: os.stat('lock')": True,
    "print(time.time(), len(stats), time.monotonic())": False,
}


@pytest.mark.parametrize("does", RAISES)
def test_a_loop_may_end_by_what_a_harmless_call_raises(does):
    thread, source_of = threads(f"def beside():\n    while True:\n        time.sleep(5)\n        {does}\n")
    taken = StackSample(id="s", source="py-spy", native=False, t_s=1.0, rank=0, pid=1, threads=(thread,))
    sample = of_sample(taken, source_of)
    assert (sample.onlookers, sample.endless_onlookers) == ((7,), () if RAISES[does] else (7,))


@pytest.mark.parametrize("does", [one for one in RAISES if "print" not in one or "look" in one])
def test_a_launcher_may_leave_its_loop_by_what_a_harmless_call_raises(does):
    assert launchers(f"def beside():\n    while child.poll() is None:\n        time.sleep(5)\n        {does}\n") is (
        not RAISES[does]
    )
