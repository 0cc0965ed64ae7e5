"""The shim in real interpreters: what it sees, whom it takes for a rank, and that it changes nothing else.

Most programs here train with a torch of a few lines, which has the four modules that the shim hangs itself on, so that
a test takes hundredths of a second; two use the real one, one of them below torchrun.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.observe.heartbeat import Heartbeats
from harness.targets.script import SHIM

TORCH = {
    "torch/__init__.py": "",
    "torch/autograd/__init__.py": """
def backward(loss, fail=False):
    if fail: raise ArithmeticError('no gradient')
""",
    "torch/optim/__init__.py": "",
    "torch/optim/optimizer.py": """
HOOKS = []
def register_optimizer_step_post_hook(hook): HOOKS.append(hook)
class Optimizer:
    def step(self):
        for hook in HOOKS: hook(self, (), {})
""",
    "torch/utils/__init__.py": "",
    "torch/utils/data/__init__.py": "",
    "torch/utils/data/dataloader.py": """
class _BaseDataLoaderIter:
    def __init__(self, n): self.n = iter(range(n))
    def __next__(self): return next(self.n)
class DataLoader:
    def __init__(self, n): self.n = n
    def __iter__(self): return _BaseDataLoaderIter(self.n)
""",
    "torch/distributed/__init__.py": "",
    "torch/distributed/distributed_c10d.py": """
RANK = -1
def init_process_group(rank):
    global RANK
    RANK = rank
def get_rank(): return RANK
def get_world_size(): return 7
def new_group(ranks=None, timeout=None): return timeout
def monitored_barrier(group=None, timeout=None): pass
""",
}

TRAIN = """
import torch.autograd, torch.optim.optimizer as optim
from torch.utils.data.dataloader import DataLoader
sgd = optim.Optimizer()
def train(steps):
    batches = iter(DataLoader(steps))
    for _ in range(steps):
        loss = next(batches)
        torch.autograd.backward(loss)
        sgd.step()
"""


@pytest.fixture
def place(tmp_path):
    """A folder with the little torch in it, and one for the trial."""
    for name, text in TORCH.items():
        file = tmp_path / "lib" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "trial").mkdir()
    return tmp_path


def run(
    place: Path,
    program: str,
    *,
    python: str = sys.executable,
    path: str = "",
    launcher: list[str] | None = None,
    **env: str,
):
    file = place / "program.py"
    file.write_text(program)
    return subprocess.run(
        [python, *(launcher or ()), str(file)],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": ":".join(filter(None, (str(SHIM), path, str(place / "lib")))),
            "NSA_HARNESS_TRIAL_DIR": str(place / "trial"),
            **env,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=500,  # a little less than a test has
    )


def marks(place: Path, rank: int = 0) -> list[dict]:
    return [json.loads(line) for line in (place / "trial" / f"heartbeat_rank{rank}.jsonl").read_text().splitlines()]


def spoken(place: Path, rank: int = 0) -> list[str]:
    return [
        f"step {mark['done']}" if "done" in mark else f"{mark['phase']} {mark['edge']} {mark['step']}"
        for mark in marks(place, rank)
    ]


STEP = ["data begin {}", "data end {}", "backward begin {}", "backward end {}"]


def test_every_step_is_told_in_the_form_of_our_own_worker(place):
    done = run(place, TRAIN + "train(2)\n")

    assert (done.returncode, done.stderr) == (0, "")
    steps = [*(text.format(0) for text in STEP), "step 1", *(text.format(1) for text in STEP), "step 2"]
    assert spoken(place) == ["data begin 0", "data end 0", *steps, "exit begin None"]
    assert [mark["seq"] for mark in marks(place)] == list(range(1, 14))


def test_a_program_without_torch_is_left_alone(place):
    program = f"import sys\nprint(sys.path[0] == sys.argv[0].rpartition('/')[0], {str(SHIM)!r} in sys.path)\n"
    done = run(place, program)

    assert (done.stdout, done.stderr) == ("True False\n", "")
    # It stays ready to show its stacks, and that is all.
    assert [(path.name, path.stat().st_size) for path in (place / "trial").iterdir()] == [("faulthandler_rank0.txt", 0)]


def test_without_a_trial_nothing_waits_for_torch(place):
    done = run(place, "import sys\nprint([type(f).__name__ for f in sys.meta_path].count('Waiting'))\n")
    alone = run(
        place,
        "import sys\nprint([type(f).__name__ for f in sys.meta_path].count('Waiting'))\n",
        NSA_HARNESS_TRIAL_DIR="",
    )

    assert (done.stdout, alone.stdout) == ("1\n", "0\n")


def test_a_sitecustomize_that_is_there_already_runs_too(place):
    theirs = place / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import builtins\nbuiltins.hello = 'theirs'\n")
    done = run(
        place, TRAIN + "train(1)\nimport sitecustomize\nprint(hello, sitecustomize.__file__)\n", path=str(theirs)
    )

    assert done.stdout == f"theirs {theirs / 'sitecustomize.py'}\n"
    assert "step 1" in spoken(place)


def test_an_error_in_that_sitecustomize_is_theirs_as_it_was(place):
    theirs = place / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import no_such_module\n")
    done = run(place, "print('on')\n", path=str(theirs))

    assert done.stdout == "on\n"
    assert "no_such_module" in done.stderr


@pytest.mark.parametrize(
    ("program", "steps"),
    [
        ("for _ in range(3): sgd.step(); other.step()", 3),
        ("for _ in range(3): sgd.step()\nfor _ in range(3): other.step()", 5),
    ],
    ids=["in turns", "one after the other"],
)
def test_two_optimizers_of_one_step_count_once(place, program, steps):
    run(place, f"{TRAIN}other = optim.Optimizer()\n{program}\n")

    assert [text for text in spoken(place) if text.startswith("step")] == [f"step {n + 1}" for n in range(steps)]


RECORDED = """
import os, threading, time
record = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + "0"
def write():
    time.sleep(0.7)
    os.write(1, b"written")
    open(record, "w").close()
open(record + ".asked", "w").close()
threading.Thread(target=write, daemon=True).start()
train(1)
"""


def test_a_rank_ends_after_the_flight_record_that_it_was_asked_for(place):
    """torch writes it in a thread that runs Python, below which the interpreter ended: a healthy program crashed."""
    done = run(place, TRAIN + RECORDED, TORCH_FR_DUMP_TEMP_FILE=str(place / "trial" / "recorder_rank"))

    assert (done.returncode, done.stdout) == (0, "written")
    assert spoken(place)[-1] == "exit begin None"


def test_ranks_are_told_apart_by_what_their_launcher_set(place):
    run(place, TRAIN + "train(1)\n", RANK="3", WORLD_SIZE="4")
    run(place, TRAIN + "train(1)\n", SLURM_PROCID="2")

    assert {mark["rank"] for mark in marks(place, 3)} == {3}
    assert {mark["rank"] for mark in marks(place, 2)} == {2}
    rows = [json.loads(line) for line in (place / "trial" / "ranks.jsonl").read_text().splitlines()]
    assert [(row["event"], row["rank"]) for row in rows] == [("started", 3), ("started", 2)]


def test_joining_a_group_tells_the_rank_and_where_a_peer_is_waited_for(place):
    join = "import torch.distributed.distributed_c10d as c10d\nc10d.init_process_group(5)\n"
    run(place, join + TRAIN + "train(1)\n")

    assert spoken(place, 0) == ["build begin None"]
    assert spoken(place, 5)[0] == "build end None"
    assert "step 1" in spoken(place, 5)


def test_the_rank_that_a_call_names_is_spoken_for_before_any_peer_is_waited_for(place):
    """A launcher that sets no variable: the first mark of every rank was rank 0's."""
    join = "import torch.distributed.distributed_c10d as c10d\nc10d.init_process_group(rank=5)\n"
    run(place, join + TRAIN + "train(1)\n")

    assert spoken(place, 5)[:2] == ["build begin None", "build end None"]
    rows = [json.loads(line) for line in (place / "trial" / "ranks.jsonl").read_text().splitlines()]
    assert {row["rank"] for row in rows} == {5}


def test_a_time_limit_that_a_group_is_given_is_told_once(place):
    limits = (
        "import datetime, torch.distributed.distributed_c10d as c10d\n"
        "seconds = lambda n: datetime.timedelta(seconds=n)\n"
        "c10d.new_group([0], seconds(1))\n"  # before there is a rank: nobody waits in it yet
        "c10d.init_process_group(5)\n"
        "assert c10d.new_group([5], timeout=seconds(38)) == seconds(38)\n"
        "c10d.new_group([5], seconds(38)); c10d.new_group([5]); c10d.monitored_barrier(timeout=seconds(2.5))\n"
    )
    run(place, limits + TRAIN + "train(1)\n")

    rows = [json.loads(line) for line in (place / "trial" / "ranks.jsonl").read_text().splitlines()]
    assert [row["seconds"] for row in rows if row["event"] == "gives_up" and row["rank"] == 5] == [38.0, 2.5]


HANDLERS = """
import asyncio, ctypes, faulthandler, os, signal
def told():
    return open(f"{os.environ['NSA_HARNESS_TRIAL_DIR']}/handlers_{os.getpid()}").read().split()[1:]
ctypes.CDLL(None).signal(signal.SIGHUP, ctypes.CDLL(None).abs)
signal.signal(signal.SIGUSR1, print)
train(1)
assert told() == ["2", "10"], told()
faulthandler.register(signal.SIGUSR2)
signal.signal(signal.SIGALRM, lambda *_: None)
asyncio.new_event_loop().add_signal_handler(signal.SIGIO, print)
assert told() == ["2", "10", "14", "29"], told()
assert signal.signal(signal.SIGUSR1, signal.SIG_DFL) is print
signal.signal(signal.SIGINT, signal.SIG_IGN)
assert told() == ["14", "29"], told()
if not os.fork():
    signal.signal(signal.SIGUSR1, print)
    os._exit(os.path.exists(f"{os.environ['NSA_HARNESS_TRIAL_DIR']}/handlers_{os.getpid()}"))
assert os.wait()[1] == 0, "a helper says nothing"
if not os.fork():
    import _signal, torch.distributed.distributed_c10d as c10d
    put_there = _signal.signal
    c10d.init_process_group(3)
    train(1)
    os._exit(_signal.signal is not put_there or told() != ["14", "29"])
assert os.wait()[1] == 0, "a child that became a rank has its parent's"
"""


def test_a_rank_tells_for_which_signals_python_has_handlers_and_of_none_in_c(place):
    done = run(place, TRAIN + HANDLERS)
    assert (done.returncode, done.stderr) == (0, "")
    pids = {marks(place, rank)[0]["pid"] for rank in (0, 3)}
    assert {path.name for path in (place / "trial").glob("handlers_*")} == {f"handlers_{pid}" for pid in pids}


OWN_HANDLERS = """
import asyncio, functools, os, signal
def own():
    path = f"{os.environ['NSA_HARNESS_TRIAL_DIR']}/own_handlers_{os.getpid()}"
    return open(path).read().split()[1:] if os.path.exists(path) else None
signal.signal(signal.SIGUSR1, print)
signal.signal(signal.SIGINT, signal.default_int_handler)
async def nothing():
    return own()
assert asyncio.run(nothing()) is None, "asyncio's own, for SIGINT"
signal.signal(signal.SIGUSR2, signal.default_int_handler)
assert own() == ["12"], "Ctrl-C's, for another signal"
signal.signal(signal.SIGUSR2, signal.SIG_DFL)
def end(*_):
    pass
signal.signal(signal.SIGTERM, end)
assert own() == ["15"]
signal.signal(signal.SIGWINCH, functools.partial(end, 1))
class Odd:
    def __getattr__(self, name):
        raise RuntimeError(name)
    def __call__(self, *_):
        pass
signal.signal(signal.SIGCONT, Odd())
asyncio.new_event_loop().add_signal_handler(signal.SIGQUIT, print)
assert own() == ["3", "15", "18", "28"], own()
signal.signal(signal.SIGTERM, signal.SIG_DFL)
if not os.fork():
    os._exit(own() != ["3", "18", "28"])
assert os.wait()[1] == 0, "a child has its parent's"
"""


def test_a_process_tells_for_which_signals_the_program_itself_has_handlers(place):
    done = run(place, OWN_HANDLERS)
    assert (done.returncode, done.stderr) == (0, "")


SERVICE = """
import os, signal
class Service:
    def stop(self, *_):
        pass
    def run(self):
        signal.signal(signal.SIGTERM, self.stop)
        print(os.path.exists(f"{os.environ['NSA_HARNESS_TRIAL_DIR']}/own_handlers_{os.getpid()}"))
def main():
    Service().run()
"""


@pytest.mark.parametrize(
    ("name", "script", "own"),
    [
        ("service", "from service import Service\nService().run()\n", True),
        ("service", "import sys\nfrom service import main\nif __name__ == '__main__':\n    sys.exit(main())\n", True),
        ("service", "import service\ndef train():\n    service.main()\ntrain()\n", False),
        ("service", "import service\nclass Model:\n    pass\nservice.main()\n", False),
        ("service", "import mine, service\nservice.main()\n", False),
        ("torch", "import torch\ntorch.main()\n", False),
    ],
    ids=["a line starts it", "its script", "called by a function", "beside a class", "beside a module", "a launcher"],
)
def test_a_handler_of_a_package_is_the_programs_where_the_package_is_the_program(name, script, own, place):
    package = place / "site-packages" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SERVICE)
    (place / "mine.py").write_text("")
    path = f"{SHIM}:{package.parent}:{place}"
    (place / "started.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "started.py"], cwd=place, text=True, capture_output=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": path, "NSA_HARNESS_TRIAL_DIR": str(place / "trial")},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{own}\n", "")


def test_a_process_that_begins_with_an_alarm_set_says_so(place):
    again = "os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], 'again'])"
    armed = f"import os, signal, sys\nif len(sys.argv) < 2:\n    signal.alarm(30)\n    {again}\n"
    run(place, armed)
    assert [path.name for path in (place / "trial").glob("armed_*")]


def test_how_many_ranks_there_are_is_told_by_the_group(place):
    """No launcher's variable says it, and some of them may be of another job."""
    run(place, "import torch.distributed.distributed_c10d as c10d\nc10d.init_process_group(5)\n" + TRAIN + "train(1)\n")

    rows = [json.loads(line) for line in (place / "trial" / "ranks.jsonl").read_text().splitlines()]
    assert [row["world"] for row in rows if row["event"] == "world"] == [7]


HELPERS = """
import multiprocessing as mp, os, subprocess, sys
import torch.distributed.distributed_c10d as c10d
def work(rank):
    if rank is not None:
        c10d.init_process_group(rank)
    train(1)
if __name__ == "__main__":
    train(1)
    helper = mp.get_context(sys.argv[1] if len(sys.argv) > 1 else "fork").Process(target=work, args=(None,))
    helper.start(); helper.join()
    subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import program", os.getcwd()])
    rank = mp.get_context("fork").Process(target=work, args=(1,))
    rank.start(); rank.join()
"""


def test_helpers_are_silent_and_a_child_that_joins_a_group_is_a_rank(place):
    done = run(place, TRAIN + HELPERS)

    assert done.returncode == 0, done.stderr
    assert len({mark["pid"] for mark in marks(place)}) == 1
    assert spoken(place).count("step 1") == 1
    assert spoken(place, 1)[0] == "build end None"
    assert "step 1" in spoken(place, 1)


def test_a_process_that_multiprocessing_started_is_no_rank_by_itself(place):
    spawn = """
import multiprocessing as mp
if __name__ == "__main__":
    helper = mp.get_context("spawn").Process(target=train, args=(1,))
    helper.start(); helper.join()
    print(helper.exitcode)
"""
    done = run(place, TRAIN + spawn)

    assert done.stdout == "0\n", done.stderr
    assert [path.name for path in (place / "trial").iterdir()] == ["faulthandler_rank0.txt"]


def test_marks_of_a_fast_program_are_thinned_out_and_say_so(place):
    done = run(place, TRAIN + "train(20000)\n")

    assert done.returncode == 0
    said = marks(place)
    assert len(said) < 5 * 1000 + 200
    assert [mark["done"] for mark in said if "done" in mark][-1] == 20000
    assert {f"step {n}" for n in range(1, 11)} <= set(spoken(place))
    thin = [mark for mark in said if mark.get("detail")]
    assert thin
    assert {(mark["phase"], mark["detail"]) for mark in thin} == {("step", "marks are thinned out")}


KILLED_IN_ITS_DATA = """
import os, signal
def killed():
    os.kill(os.getpid(), signal.SIGKILL)
    yield
train(500)
batches = iter(DataLoader(1))
batches.n = killed()
next(batches)
"""


def test_where_a_fast_program_is_can_be_read_whatever_becomes_of_it(place):
    """Its lines are thinned out long before; the memory that it shares says the place, and outlives a SIGKILL."""
    assert run(place, TRAIN + KILLED_IN_ITS_DATA).returncode == -signal.SIGKILL

    beats = Heartbeats(place / "trial", started_s=0.0)
    assert beats.read()
    assert (beats.last.phase, beats.last.edge, beats.last.step, beats.steps_done) == ("data", "begin", 500, 500)
    assert len(marks(place)) < 4 * 500
    assert not beats.read()


def test_a_program_without_shared_memory_runs_all_the_same(place):
    (place / "trial" / "place_rank0").mkdir()
    done = run(place, TRAIN + "train(500)\n")

    assert (done.returncode, done.stderr) == (0, "")
    assert [mark["done"] for mark in marks(place) if "done" in mark][-1] == 500


def test_the_exception_that_ends_a_program_is_kept_beside_what_the_program_does_with_it(place):
    hook = "import sys\nsys.excepthook = lambda *a: print('their hook', a[0].__name__)\n"
    own = run(place, TRAIN + "train(2)\ntorch.autograd.backward(0, fail=True)\n")
    said = json.loads((place / "trial" / "result_rank0.json").read_text())

    assert own.returncode == 1
    assert "no gradient" in own.stderr
    assert (said["status"], said["exception"], said["message"]) == ("raised", "ArithmeticError", "no gradient")
    assert (said["steps_done"], said["phase"]) == (2, "backward")
    assert spoken(place)[-1] == "backward end 2"
    assert "in backward" in said["traceback"]
    assert "nsa_harness_shim" not in said["traceback"]
    assert run(place, hook + TRAIN + "1 / 0\n").stdout == "their hook ZeroDivisionError\n"


SHOWN = "import sys\ntry:\n    1 / 0\nexcept ArithmeticError:\n    sys.excepthook(*sys.exc_info())\n"
NESTED = "import sys\nours = sys.excepthook\nsys.excepthook = lambda *a: ours(*a)\n1 / 0\n"


@pytest.mark.parametrize(("program", "ends"), [(SHOWN, False), (NESTED, True)], ids=["shown", "by another hook"])
def test_an_exception_that_the_program_shows_itself_does_not_end_it(program, ends, place):
    run(place, f"{TRAIN}train(1)\n{program}")
    assert (place / "trial" / "result_rank0.json").exists() is ends


THEIRS = "import sys\nsys.excepthook = lambda *error: sys.stderr.write('mine')\n"
GOES_ON = f"{THEIRS}import code\ncode.InteractiveInterpreter(globals()).runsource('1 / 0')\n"
GROUP = """
import asyncio
async def shard(number):
    if number == 2:
        raise LookupError("shard 2 is empty")
async def main():
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(shard(number))
asyncio.run(main())
"""


@pytest.mark.parametrize("train", ["", f"{TRAIN}train(1)\n"], ids=["silent", "training"])
def test_an_exception_that_a_hook_of_the_programs_own_shows_is_kept_too(train, place):
    done = run(place, f"{train}{THEIRS}def load():\n    1 / 0\nload()\n")
    said = json.loads((place / "trial" / "result_rank0.json").read_text())
    assert (done.returncode, done.stderr, said["exception"]) == (1, "mine", "ZeroDivisionError")
    assert "in load" in said["traceback"]


BAD = """
class Bad(Exception):
    def __str__(self):
        {answer}
def step():
    raise Bad(3)
"""


@pytest.mark.parametrize("hook", ["", THEIRS], ids=["Python's hook", "a hook of its own"])
@pytest.mark.parametrize(
    "answer", ["return self.missing", "return None", "raise SystemExit(4)", "raise KeyboardInterrupt"]
)
def test_an_exception_that_cannot_say_what_it_is_ends_the_program_as_without_us(answer, hook, place):
    program = f"{hook}{BAD.format(answer=answer)}step()\n"
    (place / "program.py").write_text(program)
    bare = subprocess.run([sys.executable, str(place / "program.py")], capture_output=True, text=True, check=False)
    done = run(place, program)
    said = json.loads((place / "trial" / "result_rank0.json").read_text())
    assert (done.returncode, done.stderr) == (bare.returncode, bare.stderr)
    assert (said["exception"], said["message"]) == ("__main__.Bad", "<exception str() failed>")
    assert [frame["function"] for frame in said["frames"]] == ["step", "<module>"]


def test_where_an_exception_was_raised_is_told_apart_from_its_message(place):
    quoting = (
        "def step(n):\n    if n: step(n - 1)\n    raise ValueError('bad:\\n  File \"conf.yaml\", line 3')\nstep(9)\n"
    )
    run(place, quoting)
    said = json.loads((place / "trial" / "result_rank0.json").read_text())
    rows = [(frame["function"], frame["line"]) for frame in said["frames"]]
    assert rows == [("step", 3), ("step", 2), ("step", 2), ("step", 2), ("<module>", 4)]
    assert {Path(frame["file"]).name for frame in said["frames"]} == {"program.py"}


def test_the_line_that_is_no_python_is_told(place):
    (place / "lib" / "net.py").write_text("x = 1\ndef f(:\n")
    run(place, "import net\n")
    said = json.loads((place / "trial" / "result_rank0.json").read_text())
    assert (said["frames"][0]["file"], said["frames"][0]["line"]) == (str(place / "lib" / "net.py"), 2)


def test_what_a_pools_worker_said_is_told_beside_who_asked_it(place):
    run(
        place,
        "import multiprocessing\nwith multiprocessing.get_context('fork').Pool(1) as pool: pool.map(abs, ['x'])\n",
    )
    said = json.loads((place / "trial" / "result_rank0.json").read_text())
    assert "in worker" in said["quoted"]
    assert said["frames"][-1]["function"] == "<module>"


TYPED = f"""{THEIRS}
try:
    exec(compile("1 / 0", "<console>", "exec"), globals())
except ArithmeticError as error:  # as the shell of Python 3.13 remembers it, without its own frame
    sys.last_value, sys.last_traceback = error, error.__traceback__.tb_next
"""


@pytest.mark.parametrize("shell", [GOES_ON, TYPED], ids=["of this Python", "of 3.13"])
@pytest.mark.parametrize("code", [0, 3])
def test_what_a_shell_within_the_program_has_shown_did_not_end_it(code, shell, place):
    done = run(place, f"{TRAIN}train(1)\n{shell}sys.exit({code})\n")
    assert done.returncode == code
    assert not (place / "trial" / "result_rank0.json").exists()


def test_of_a_group_the_first_exception_in_it_is_told(place):
    run(place, GROUP)
    said = json.loads((place / "trial" / "result_rank0.json").read_text())
    assert (said["exception"], said["message"]) == ("LookupError", "shard 2 is empty")
    assert "in shard" in said["traceback"].rpartition("The first of them:")[2]


DAEMON = """
import os
train(2)
os.closerange(3, 64)
own = [os.open(f"own{n}", os.O_RDWR | os.O_CREAT) for n in range(8)]
train(2)
if os.fork() == 0:
    os._exit(any(os.write(fd, b"x") != 1 for fd in own))
assert os.wait()[1] == 0
assert [os.fstat(fd).st_size for fd in own] == [1] * 8
"""


def test_a_daemon_that_closes_all_descriptors_has_its_own_files_for_itself(place, monkeypatch):
    monkeypatch.chdir(place)
    done = run(place, f"{TRAIN}{DAEMON}")
    assert (done.returncode, done.stderr) == (0, "")
    assert [mark["done"] for mark in marks(place) if "done" in mark] == [1, 2, 3, 4]


def test_ctrl_c_ends_a_program_without_torch_by_its_signal(place):
    assert run(place, "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n").returncode == -2


@pytest.mark.parametrize("begun", [False, True])
def test_an_exception_says_whether_python_began_its_process(begun, place):
    fails = "raise RuntimeError('gone')"
    run(place, f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {fails!r}])\n" if begun else fails)
    assert json.loads((place / "trial" / "result_rank0.json").read_text())["begun_by_python"] is begun


def test_how_a_program_was_begun_is_written_down_without_the_values_of_variables(place):
    command = f"TOKEN=abc123 KEY='d e4' {sys.executable} -c 1/0 2>/dev/null || true"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SHIM), "NSA_HARNESS_TRIAL_DIR": str(place / "trial")}
    subprocess.run(["bash", "-c", command], env=environment, check=True, timeout=100)
    text = (place / "trial" / "result_rank0.json").read_text()
    begun = json.loads(text)["begun"]
    assert (begun["unheard"], begun["words"], begun["shell"][:2]) == (True, ["-c", "1/0"], ["bash", "-c"])
    assert "abc123" not in text
    assert "d e4" not in text


@pytest.mark.parametrize("variable", ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"])
def test_the_exception_of_a_rank_is_that_ranks_whoever_started_it(place, variable):
    run(place, TRAIN + "train(1)\n1 / 0\n", **{variable: "3"})
    assert json.loads((place / "trial" / "result_rank3.json").read_text())["exception"] == "ZeroDivisionError"


def test_the_end_of_a_launcher_is_no_ranks(place):
    train = f"{TRAIN}train(1)\nraise SystemExit(3)\n"
    run(place, f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {train!r}], check=True)\n")

    assert "step 1" in spoken(place)
    assert len({mark["pid"] for mark in marks(place)}) == 1
    assert not (place / "trial" / "result_rank0.json").exists()


def test_a_folder_that_is_gone_is_said_once_and_training_goes_on(place):
    done = run(place, TRAIN + "train(3)\nprint('done')\n", NSA_HARNESS_TRIAL_DIR=str(place / "nowhere"))

    assert done.stdout == "done\n"
    assert done.stderr.count("heartbeats cannot be written") == 1


def test_a_torch_that_is_built_otherwise_still_runs(place):
    (place / "lib/torch/utils/data/dataloader.py").write_text("class DataLoader: pass\n")
    done = run(place, "import torch.utils.data.dataloader\nprint('ran')\n")

    assert done.stdout == "ran\n"
    assert "no progress from torch.utils.data.dataloader" in done.stderr


def test_another_interpreter_with_its_own_environment_is_seen_as_well(place):
    venv = place / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", str(venv)], check=True)
    done = run(place, TRAIN + "train(1)\nimport sys\nprint(sys.prefix)\n", python=str(venv / "bin" / "python"))

    assert done.stdout == f"{venv}\n"
    assert "step 1" in spoken(place)


REAL = """
import torch
model = torch.nn.Linear(4, 4)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(4, 4))
for (x,) in torch.utils.data.DataLoader(data, batch_size=2):
    sgd.zero_grad()
    model(x).sum().backward()
    sgd.step()
"""


def test_the_real_torch_has_what_the_shim_hangs_itself_on(place):
    (place / "lib").rename(place / "unused")
    done = run(place, REAL)

    assert (done.returncode, done.stderr) == (0, "")
    steps = [*(text.format(0) for text in STEP), "step 1", *(text.format(1) for text in STEP), "step 2"]
    assert spoken(place) == ["data begin 0", "data end 0", *steps, "data begin 2", "data end 2", "exit begin None"]


ASKED_FOR_A_RECORD = """
import sys, threading, _thread, torch, torch.distributed
torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
taken = torch._C._profiler.gather_traceback(python=True, script=True, cpp=False)
done = threading.Event()
class Last(list):
    def __del__(self): done.set()
_thread.start_new_thread(torch._C._profiler.symbolize_tracebacks, (Last([taken]),))
done.wait(60)
print("torch._inductor" in sys.modules)
torch._inductor
print("torch._inductor" in sys.modules)
"""


def test_a_record_of_collectives_imports_nothing_beside_the_program(place):
    """Its thread, which torch starts, looks for torch._inductor: a rank failed within an import of its own."""
    (place / "lib").rename(place / "unused")
    done = run(place, ASKED_FOR_A_RECORD)
    assert (done.returncode, done.stdout.split()) == (0, ["False", "True"]), done.stderr


# torch.distributed.nn, imported by DDP, keeps in its functions' defaults the group that exists then. Imported before
# there is one, it cannot keep the group from ending: a gloo thread that outlives the interpreter aborts the process.
RANKS = """
import torch, torch.distributed.nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    sgd.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    sgd.step()
for name in ("reducer", "logger", "process_group"):
    vars(model).pop(name)
dist.destroy_process_group()
"""


@pytest.mark.long
def test_every_rank_below_torchrun_tells_its_own_progress_and_torchrun_none(place):
    (place / "lib").rename(place / "unused")
    launch = ["--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    done = run(place, RANKS, launcher=["-m", "torch.distributed.run", *launch])

    assert done.returncode == 0, done.stderr
    build = ["build begin None", "build end None"]
    steps = [text for n in range(2) for text in (f"backward begin {n}", f"backward end {n}", f"step {n + 1}")]
    for rank in range(2):
        assert spoken(place, rank) == [*build, *steps, "exit begin None"]
        assert len({mark["pid"] for mark in marks(place, rank)}) == 1


def test_the_shim_and_the_observer_mean_the_same_signals():
    from harness.observe.stacks.faulthandler import PAIRS
    from harness.shim.nsa_harness_shim import AT_ONCE, GENTLY

    assert PAIRS[0] == (GENTLY, AT_ONCE)
