"""What ends a job: the processes that hang, the launcher that passes a signal on, and never whoever asks."""

from __future__ import annotations

import pytest

from harness.observe.job import Member, ProcessTable, find_job
from harness.observe.to_end import FROM_OUTSIDE, to_end


def member(pid, parent, *, rank=None, python=True, command="python", argv="", inner=0):
    env = {} if rank is None else {"RANK": str(rank), "WORLD_SIZE": "2"}
    return Member(
        pid=pid, started=pid, parent=parent, state="S", command=command, argv=argv, inner=inner, python=python, env=env
    )


def end_of(named, *rows, stuck=None, above=(), deaf=()):
    tree = ProcessTable({row.pid: row for row in rows})
    return to_end(find_job(named, tree=tree), stuck=stuck, tree=tree, above=above, is_deaf=lambda pid: pid in deaf)


SHELL = member(9, 0, python=False, command="bash")
RANKS = (member(20, 9, rank=0), member(21, 9, rank=1))
TORCHRUN = member(10, 9, argv="/usr/bin/python /usr/bin/torchrun --nproc-per-node 2 train.py", command="pt_elastic")
BELOW_IT = (TORCHRUN, member(20, 10, rank=0), member(21, 10, rank=1))
FAMILIES = (member(20, 9), member(21, 20), member(22, 21, command="pt_data_worker"), member(30, 9))


@pytest.mark.parametrize(
    ("rows", "facts", "command"),
    [
        (RANKS, {}, "kill 20 21"),
        (BELOW_IT, {}, "kill 10"),
        (BELOW_IT, {"deaf": (10,)}, "kill 10"),
        (RANKS, {"deaf": (21,)}, "kill -9 20 21"),
        (RANKS, {"above": (20, 9)}, "kill 21"),
        ((member(20, 9),), {"above": (20, 9)}, ""),
        (FAMILIES, {"stuck": 21}, "kill 20 21"),
        (FAMILIES, {"stuck": 22}, "kill 20 21"),
        (FAMILIES, {"stuck": 30}, "kill 30"),
        (FAMILIES, {}, "kill 20 21 30"),
        ((member(20, 9, inner=1),), {}, "kill -9 20"),
    ],
)
def test_the_processes_that_hang_are_named_or_what_passes_a_signal_on_to_them(rows, facts, command):
    assert end_of(9, SHELL, *rows, **facts) == command


def test_process_one_is_not_ended_from_inside_its_container():
    assert end_of(1, member(1, 0)) == FROM_OUTSIDE
