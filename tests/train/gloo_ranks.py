"""Two gloo ranks that are started once and answer many questions: the work of a test module runs inside them."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import traceback
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

SIZE = 2
LIMIT_S = 500.0
"""When a question is given up: a little before its test is. No answer takes as long unless it never comes."""


def fresh_processes() -> Any:
    """Processes that are forked from a server which has imported everything and run nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["nsa.train.trainer", "torch.distributed.checkpoint", "torch.distributed.fsdp"])
    return context


class Ranks:
    """Runs a function on every rank at once and gives back what each returned."""

    def __init__(self) -> None:
        # Where the ranks find each other is here, on a port that is taken from the first moment on.
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        context = fresh_processes()
        pairs = [context.Pipe() for _ in range(SIZE)]
        self._pipes = [ours for ours, _ in pairs]
        self._processes = [
            context.Process(target=_serve, args=(rank, self._store.port, theirs), daemon=True)
            for rank, (_, theirs) in enumerate(pairs)
        ]
        for process in self._processes:
            process.start()
        for _, theirs in pairs:
            theirs.close()

    def run(self, function: Any, *args: Any, timeout_s: float = LIMIT_S) -> list[Any]:
        """``function(rank, *args)`` on every rank; an exception on any of them is raised here, with its traceback."""
        for pipe in self._pipes:
            pipe.send((function, args))
        answers = []
        for rank, pipe in enumerate(self._pipes):
            if not pipe.poll(timeout_s):
                raise TimeoutError(f"rank {rank} did not answer in {timeout_s} s")
            answers.append(pipe.recv())
        failed = [f"rank {rank}:\n{text}" for rank, (is_good, text) in enumerate(answers) if not is_good]
        if failed:
            raise AssertionError("\n".join(failed))
        return [value for _, value in answers]

    def answer_of(self, rank: int, function: Any, *args: Any, timeout_s: float = LIMIT_S) -> Any:
        """What ``rank`` alone answers to a question to all, whatever becomes of the others."""
        for pipe in self._pipes:
            pipe.send((function, args))
        if not self._pipes[rank].poll(timeout_s):
            raise TimeoutError(f"rank {rank} did not answer in {timeout_s} s")
        return self._pipes[rank].recv()[1]

    def kill(self) -> None:
        """End the ranks at once; for those that a test has broken."""
        for process in self._processes:
            process.kill()
            process.join()

    def close(self) -> None:
        """Let the ranks leave together."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process in self._processes:
            process.join(timeout=20)
            if process.is_alive():
                process.kill()
                process.join()


def _serve(rank: int, port: int, pipe: Any) -> None:
    torch.set_num_threads(1)
    limit = timedelta(seconds=LIMIT_S)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=limit)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE, timeout=limit)
    world = dist.group.WORLD
    while (job := pipe.recv()) is not None:
        function, args = job
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                answer = (True, function(rank, *args))
        except Exception:  # noqa: BLE001 - raised again where the question was asked
            answer = (False, traceback.format_exc())
        _forget_groups_beside(world)
        pipe.send(answer)
    dist.destroy_process_group()


def _forget_groups_beside(world: Any) -> None:
    """Ends the groups that an answer made: each has three threads that ask for work a hundred times a second."""
    for group in [group for group in dist.distributed_c10d._world.pg_map if group is not world]:
        dist.destroy_process_group(group)
