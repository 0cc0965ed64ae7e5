"""What a process says of the loops around the one that it is in, when it is asked."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.shim.nsa_harness_shim import event_loop, items_of, own_frames, positions

ROOT = Path(__file__).resolve().parents[2]


def test_positions_are_found_by_identity_among_those_of_the_same_type():
    class Block:
        def __eq__(self, other):
            raise AssertionError("nothing of the program's is asked anything")

        __hash__ = object.__hash__

    blocks = [object(), *(Block() for _ in range(4))]

    def forward(blocks):
        for block in blocks:
            if block is blocks[3]:
                return positions(own_frames(sys._getframe()))
        return []

    name, file, _, local, place, of, outer = forward(blocks)[0]
    assert (name, local, place, of) == ("forward", "block", 2, 4)
    assert Path(file).name == "test_inside.py"
    assert outer > 1


def test_objects_that_answer_with_an_exception_hide_no_other_position():
    class Lazy:
        __slots__ = ()

        def __getattr__(self, name):
            raise RuntimeError("not bound yet")

    class Trainer:
        def __init__(self):
            self._modules, self.lazy = None, Lazy()

        def train(self, shards):
            for shard in shards:
                if shard is shards[1]:
                    return positions(own_frames(sys._getframe()))
            return []

    row = Trainer().train([object(), object(), object()])[0]
    assert (row[0], row[3], row[4]) == ("train", "shard", 1)


def test_what_is_huge_or_single_is_no_list_to_go_through():
    assert items_of([1]) == () == items_of(list(range(20_000))) == items_of({1: 2})
    assert list(items_of((1, 2))) == [1, 2]


@pytest.mark.long
def test_a_token_loop_is_slow_with_its_counter_its_line_its_block_and_what_it_will_need(tmp_path):
    program = [sys.executable, "bench/strangers/token_loop.py", "--layers", "6", "--tokens", "8192", "--heads", "8"]
    command = [Path(sys.executable).with_name("nsa-harness"), "run", "--json", "--limit", "30s", "--runs", tmp_path]
    done = subprocess.run(
        [*command, "--", *program], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    verdict = json.loads(done.stdout)["trials"][0]["verdict"]
    assert verdict["kind"] == "SLOW"
    assert " of 8192 in Attention.forward (token_loop.py:27)" in verdict["because"]
    assert "of 6 in forward (torch/nn/modules/container.py:" in verdict["because"]
    assert " s in all" in verdict["because"]


LOOP = "import time\nfor i in range(5): print(i, flush=True)\nn = 0\nwhile n >= 0:\n    n = n\n"
KEEPS_THE_LOCK = "import ctypes\nprint('on', flush=True)\nctypes.PyDLL(None).pause()\n"


def test_an_endless_loop_at_a_scripts_own_level_is_told_though_nobody_outside_sees_its_variables(tmp_path):
    (tmp_path / "train.py").write_text(LOOP)
    command = [Path(sys.executable).with_name("nsa-harness"), "run", "--json", "--runs", tmp_path / "runs"]
    done = subprocess.run(
        [*command, "--", sys.executable, tmp_path / "train.py"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    verdict = json.loads(done.stdout)["trials"][0]["verdict"]
    assert (verdict["kind"], verdict["cause"]) == ("HANG", "infinite-loop")
    assert "`while n >= 0:` of <module> (train.py:4), which never ends" in verdict["because"]


@pytest.mark.parametrize(
    ("text", "status", "cause"),
    [
        pytest.param(LOOP, 3, "may-be-endless", id="loop", marks=pytest.mark.long),
        pytest.param(KEEPS_THE_LOCK, 1, "gil-held", id="lock"),
    ],
)
def test_watch_never_says_of_what_gets_nowhere_that_no_hang_was_seen(tmp_path, text, status, cause):
    (tmp_path / "train.py").write_text(text)
    with subprocess.Popen([sys.executable, tmp_path / "train.py"], stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        job.stdout.readline()
        command = [Path(sys.executable).with_name("nsa-harness"), "watch", str(job.pid), "--json", "--runs", tmp_path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        job.kill()
    assert (done.returncode, json.loads(done.stdout)["verdict"]["cause"]) == (status, cause)


def test_a_task_tells_where_what_it_awaits_stands():
    """On to the task that it awaits, and of several that are gathered to the first that is not done."""
    answers = []

    async def inner(future):
        await future

    async def middle(future):
        await inner(future)

    async def beat():
        await asyncio.sleep(60)

    async def main():
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        beats = loop.create_task(beat())
        tasks = [loop.create_task(asyncio.sleep(0)), loop.create_task(middle(future))]
        loop.call_later(0.02, lambda: answers.append(event_loop(own_frames(sys._getframe()))))
        loop.call_later(0.04, future.set_result, None)
        await asyncio.gather(*tasks)
        beats.cancel()

    asyncio.run(main())
    rows, others, timers = answers[0]
    assert [function for function, _, _ in rows] == ["inner", "middle", "main"]
    assert {file for _, file, _ in rows} == {__file__}
    first = inner.__code__.co_firstlineno
    assert [line - first for _, _, line in rows] == [1, 4, 16]
    assert [row[0] for row in others[0][1]] == ["sleep", "beat"]
    assert (len(others), timers) == (1, 2)


@pytest.mark.parametrize("together", ["gather", "wait", "TaskGroup"])
def test_of_tasks_that_are_awaited_together_one_that_does_more_than_sleep_is_named(together):
    answers = []

    async def nap():
        await asyncio.sleep(0.05)

    async def stuck(future):
        await future

    async def main():
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_later(0.02, lambda: answers.append(event_loop(own_frames(sys._getframe()))))
        loop.call_later(0.04, future.set_result, None)
        if together == "TaskGroup":
            async with asyncio.TaskGroup() as group:
                group.create_task(nap())
                group.create_task(stuck(future))
        else:
            tasks = [loop.create_task(nap()), loop.create_task(stuck(future))]
            await (asyncio.gather(*tasks) if together == "gather" else asyncio.wait(tasks))

    asyncio.run(main())
    assert answers[0][0][0][0] == "stuck"
    assert answers[0][0][-1][0] == "main"


def test_without_an_event_loop_nothing_is_awaited():
    assert event_loop(own_frames(sys._getframe())) == ([], [], 0)


AWAITS = """
import asyncio, logging
async def take(queue):
    while await queue.get() is not None:
        pass
async def beat():
    while True:
        await asyncio.sleep(1)
        logging.debug("alive")
async def main():
    print("on", flush=True)
    task = asyncio.create_task(beat())
    await take(asyncio.Queue())
asyncio.run(main())
"""


LAUNCHES = """
import subprocess, sys
running = subprocess.Popen([sys.executable, sys.argv[1]])
while running.returncode is None:
    try:
        running.wait(timeout=1)
    except subprocess.TimeoutExpired:
        continue
sys.exit(running.returncode)
"""


@pytest.mark.long
def test_of_a_stuck_event_loop_the_line_is_named_that_awaits_though_a_heartbeat_wakes_it(tmp_path):
    """Also where the first process of the trial is what started the program, and looks after it once a second."""
    path, launcher = tmp_path / "serve.py", tmp_path / "launch.py"
    path.write_text(AWAITS)
    launcher.write_text(LAUNCHES)
    command = [Path(sys.executable).with_name("nsa-harness"), "run", "--json", "--runs", tmp_path / "runs"]
    done = subprocess.run(
        [*command, "--", sys.executable, launcher, path], capture_output=True, text=True, timeout=60, check=False
    )
    verdict = json.loads(done.stdout)["trials"][0]["verdict"]
    assert (verdict["kind"], verdict["cause"], verdict["confidence"]) == ("HANG", "deadlock", "medium")
    assert "an event loop that only its own tasks and threads could wake" in verdict["because"]
    assert "the main thread waits in take (" in verdict["because"]
    assert "serve.py:4)" in verdict["because"]
