"""What a loop does while nobody whom it asks has ended: launchers as people write them."""

from __future__ import annotations

import ast

import pytest

from harness.reading.own_source import file_of
from harness.reading.turns import turn_of

ENDED = "p.poll() not in (None, 0)"

WAITS = {
    "any": "while any(p.poll() is None for p in procs): time.sleep(1)",
    "one child": "while p.poll() is None: time.sleep(1)",
    "is alive": "while any(p.is_alive() for p in procs): time.sleep(1)",
    "not all ended": "while not all(p.poll() is not None for p in procs): time.sleep(1)",
    "stops the others": f"while True:\n  time.sleep(1)\n  for p in procs:\n    if {ENDED}: act()",
    "leaves when one fails": f"while True:\n  if any({ENDED} for p in procs): break\n  time.sleep(1)",
    "a list of codes": (
        "while True:\n  codes = [p.poll() for p in procs]\n  if all(c is not None for c in codes): break\n"
        "  bad = [i for i, c in enumerate(codes) if c not in (None, 0)]\n  if bad: act(); break\n  time.sleep(1)"
    ),
    "a code by name": (
        "while 1:\n  rc = p.poll()\n  if rc is not None and rc != 0: act()\n  elif rc == 0: break\n  time.sleep(1)"
    ),
    "walrus": "while (rc := p.poll()) is None: time.sleep(1)",
    "exit codes": (
        "while True:\n  for p in ps:\n    if p.exitcode: act()\n"
        "  if not any(p.is_alive() for p in ps): break\n  time.sleep(1)"
    ),
    "a count of the alive": (
        "while True:\n  alive = 0\n  for p in procs:\n    if p.poll() is None: alive += 1\n    else: act()\n"
        "  if alive == 0: break\n  time.sleep(1)"
    ),
    "a count of the ended": (
        "while True:\n  n = 0\n  for p in procs:\n    if p.poll() is not None: n += 1\n"
        "  if n == len(procs): break\n  time.sleep(1)"
    ),
    "a flag": (
        "while True:\n  alive = False\n  for p in procs:\n    if p.poll() is None: alive = True\n"
        "  if not alive: break\n  time.sleep(1)"
    ),
    "a list of the running": (
        "while True:\n  running = []\n  for p in procs:\n    if p.poll() is None: running.append(p)\n"
        "  if not running: break\n  time.sleep(1)"
    ),
    "those that are left": "while procs:\n  procs = [p for p in procs if p.poll() is None]\n  time.sleep(1)",
    "wait with a limit": (
        "while procs:\n  for i, p in list(procs.items()):\n    try:\n      rc = p.wait(timeout=1)\n"
        "    except subprocess.TimeoutExpired:\n      continue\n    act(); del procs[i]"
    ),
    "waitpid": "while True:\n  pid, status = os.waitpid(-1, os.WNOHANG)\n  if pid: act(); break\n  time.sleep(1)",
    "a sum": "while sum(p.is_alive() for p in procs) > 0: time.sleep(1)",
    "what it has": (
        "class Job:\n  def start(self): self.procs = start()\n  def wait(self):\n    while self.procs:\n"
        "      for p in list(self.procs):\n        if p.poll() is None: continue\n        self.procs.remove(p)\n"
        "      time.sleep(1)"
    ),
    "its own function": (
        "while any_alive(procs): time.sleep(1)\ndef any_alive(some):\n  return any(p.poll() is None for p in some)"
    ),
    "its own function, in steps": (
        "while any_alive(procs): time.sleep(1)\n"
        "def any_alive(some):\n  for p in some:\n    if p.poll() is None: return True\n  return False"
    ),
    "its own method": (
        "class Job:\n  def __init__(self): self.procs = start()\n  def wait(self):\n"
        "    while self.alive() > 0: time.sleep(1)\n  def alive(self): return sum(p.is_alive() for p in self.procs)"
    ),
    "a poll that asks a process": (
        "while any(j.poll() is None for j in procs): time.sleep(1)\n"
        "class Job:\n  def poll(self):\n    return self.proc.poll()"
    ),
    "all have ended": (
        "while not over(procs): time.sleep(1)\ndef over(some):\n  codes = [p.poll() for p in some]\n"
        "  return all(c is not None for c in codes)"
    ),
    "by place": "while procs[0].poll() is None or procs[1].poll() is None: time.sleep(1)",
}


def loop_of(source):
    """The outermost loop of a source, and the names that the source sets."""
    tree = ast.parse(source)
    sets = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    file = file_of(source)
    return next(node for node in ast.walk(file.tree) if isinstance(node, ast.While)), frozenset(sets), file


def calls(turn):
    """The names that a turn calls."""
    names = set()
    for part in turn.reached:
        names |= {
            node.func.id for node in ast.walk(part) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
    return names


@pytest.mark.parametrize("source", WAITS.values(), ids=WAITS)
def test_a_launcher_does_nothing_and_goes_on_until_a_child_ends(source):
    turn = turn_of(*loop_of("procs = start()\n" + source))
    assert (turn.asks, turn.may_leave) == (True, False)
    assert "act" not in calls(turn)


ACTS = {
    "a clock": "while any(p.poll() is None for p in procs):\n  time.sleep(1)\n  if time.time() > end: act()",
    "a clock by name": "while True:\n  now = time.time()\n  if now - begun > 60: act()\n  time.sleep(1)",
    "a count of turns": "while True:\n  turns += 1\n  if turns > 60: act()\n  time.sleep(1)",
    "a count of attributes": "while True:\n  if self.turns > 60: act()\n  self.turns += 1\n  time.sleep(1)",
    "a count beside a question": (
        "while True:\n  if p.poll() is None: turns += 1\n  if turns > 60: act()\n  time.sleep(1)"
    ),
    "a file": "while True:\n  if os.path.exists('stop'): act()\n  time.sleep(1)",
    "while it runs": "while True:\n  if p.poll() is None: act()\n  time.sleep(1)",
    "after a limit": "while True:\n  try: p.wait(timeout=30)\n  except subprocess.TimeoutExpired: act()",
    "what is taken": "while True:\n  job = jobs.pop()\n  if not job: act()\n  time.sleep(1)",
    "always": "while True:\n  act()\n  time.sleep(1)",
}


@pytest.mark.parametrize("source", ACTS.values(), ids=ACTS)
def test_what_a_clock_or_a_count_may_decide_is_reached(source):
    assert "act" in calls(turn_of(*loop_of(source)))


LEAVES = {
    "a clock": "while time.time() < end: time.sleep(1)",
    "a break by a clock": "while True:\n  if time.time() > end: break\n  time.sleep(1)",
    "a count": "while True:\n  n += 1\n  if n == 60: break\n  time.sleep(1)",
    "a future": "while not all(f.done() for f in futures): time.sleep(1)",
    "an event": "while not stop.wait(5): print(stats)",
    "its own function": "while is_running(): time.sleep(1)",
    "a message": "while True:\n  message = queue.get_nowait()\n  if message: break\n  time.sleep(1)",
    "somebody else's name": "while rest: time.sleep(1)",
    "a property": (
        "class Job:\n  @property\n  def on(self): return time.time() < self.end\n  def wait(self):\n"
        "    while self.on: p.poll()"
    ),
    "what another file may define": "class Job(Base):\n  def wait(self):\n    while self.on: p.poll()",
    "an attribute of what it has": "job = start()\nwhile job.on: p.poll()",
    "its own function by a clock": (
        "procs = start()\nwhile on(procs): time.sleep(1)\ndef on(some):\n  if time.time() > end: return False\n"
        "  return any(p.poll() is None for p in some)"
    ),
    "its own function by a count": (
        "procs = start()\nwhile on(procs): time.sleep(1)\ndef on(some):\n"
        "  global n\n  n += 1\n  return n < 60 and some[0].poll() is None"
    ),
    "its own function, given a clock": (
        "procs = start()\nwhile True:\n  check(time.time())\n  if not procs[0].poll() is None: break\n"
        "def check(now):\n  if now > 60: raise TimeoutError"
    ),
    "its own function, given a clock by name": (
        "procs = start()\nwhile on(procs, now=time.time()): time.sleep(1)\n"
        "def on(some, now): return now < 60 and some[0].poll() is None"
    ),
    "a method of another class of the file": (
        "procs = start()\nwhile procs[0].poll() is None: clock.check()\nclass Clock:\n  def check(self):\n"
        "    if time.time() > self.end: raise TimeoutError"
    ),
    "a poll of its own": (
        "jobs = start()\nwhile any(j.poll() is None for j in jobs): time.sleep(1)\nclass Job:\n  def poll(self):\n"
        "    if time.time() > self.end: return 1\n    return self.proc.poll()"
    ),
    "what a limit raises": "while p.poll() is None: p.wait(timeout=45)",
    "a with by a clock": (
        "while p.poll() is None:\n  with deadline(): time.sleep(1)\ndef deadline():\n"
        "  if time.time() > end: raise TimeoutError\n  return lock"
    ),
    "its own function by a name": "procs = start()\nwhile on(procs): time.sleep(1)\ndef on(some): return not stop",
    "its own function that may raise": (
        "procs = start()\nwhile on(procs): time.sleep(1)\ndef on(some):\n  try: some[0].wait(timeout=60)\n"
        "  except TimeoutError: return False\n  return True"
    ),
    "what its own function counts": (
        "class Job:\n  def wait(self):\n    while True:\n      self.tick()\n      if self.n > 60: break\n"
        "      p.poll()\n  def tick(self): self.n += 1"
    ),
    "what its own function fills": (
        "class Job:\n  def wait(self):\n    while True:\n      self.tick()\n      if len(self.rows) > 60: break\n"
        "      p.poll()\n  def tick(self, *_): self.rows.append(1)"
    ),
    "an exception": "while True:\n  try: time.sleep(1)\n  except KeyboardInterrupt: break",
    "a raise in a try": "while True:\n  if time.monotonic() > end: raise SystemExit(1)\n  time.sleep(1)",
    "after a limit": "while True:\n  try: p.wait(timeout=30)\n  except subprocess.TimeoutExpired: break",
    "what it counts down": "while n:\n  n -= 1\n  time.sleep(1)",
    "a list that it empties": "rows = []\nwhile rows:\n  rows.pop()\n  time.sleep(1)",
    "a random number": "while True:\n  if random.random() < 0.1: break\n  time.sleep(1)",
}


@pytest.mark.parametrize("source", LEAVES.values(), ids=LEAVES)
def test_what_a_clock_a_count_or_an_unknown_call_may_end_may_be_left(source):
    assert turn_of(*loop_of(source)).may_leave


def test_a_break_of_a_loop_within_leaves_that_one_alone():
    source = "while p.poll() is None:\n  for q in others:\n    if time.time() > end: break\n  time.sleep(1)"
    assert not turn_of(*loop_of(source)).may_leave
