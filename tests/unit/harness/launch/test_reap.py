from __future__ import annotations

import signal
from dataclasses import dataclass, field

from fake_clock import FakeClock
from harness.launch.handle import KILL_LIMIT_S, RUNNABLE_LIMIT_S, end_tree
from harness.launch.procs import Process


@dataclass
class Tree:
    """Processes that react to signals: pid -> the signals that end it."""

    ends_on: dict[int, set[int]]
    states: dict[int, str] = field(default_factory=dict)
    sent: list[tuple[int, int]] = field(default_factory=list)
    forks: dict[int, int] = field(default_factory=dict)
    leaving: list[Process] = field(default_factory=list)

    def live(self) -> list[Process]:
        return [
            Process(pid=pid, started=1, parent=1, state=self.states.get(pid, "S"), threads=1, command=f"p{pid}")
            for pid in self.ends_on
        ]

    def read(self, pid: int) -> Process | None:
        return next((process for process in self.live() + self.leaving if process.pid == pid), None)

    def send(self, process: Process, number: int) -> bool:
        self.sent.append((process.pid, number))
        if number == signal.SIGCONT:
            self.states.pop(process.pid, None)
        if number in self.ends_on[process.pid] and "T" not in self.states.get(process.pid, ""):
            del self.ends_on[process.pid]
            if process.pid in self.forks:
                self.ends_on[self.forks[process.pid]] = {signal.SIGKILL}
        return True


BOTH = {int(signal.SIGTERM), int(signal.SIGKILL)}
KILL = {int(signal.SIGKILL)}


def end(tree: Tree, *, grace_s: float = 5.0, confirm=lambda: True, clock: FakeClock | None = None):
    return end_tree(
        live=tree.live,
        confirm=confirm,
        grace_s=grace_s,
        clock=clock or FakeClock(100.0),
        since_s=90.0,
        send=tree.send,
        read=tree.read,
        waiting=lambda process: (process.state, "io_schedule"),
    )


def test_nothing_left_means_nothing_sent():
    cleanup = end(Tree({}))

    assert (cleanup.signals, cleanup.ended, cleanup.survivors) == ((), 0, ())


def test_who_ends_by_itself_in_the_time_that_it_is_spared_is_sent_nothing_and_was_not_left_behind():
    clock, tree = FakeClock(100.0), Tree({1: BOTH, 2: BOTH})

    def live():
        if clock.now() > 100.3:
            tree.ends_on.pop(1, None)
        return tree.live()

    cleanup = end_tree(
        live=live, confirm=lambda: True, grace_s=5.0, clock=clock, since_s=90.0, spare_s=1.0, send=tree.send,
        read=tree.read,
    )  # fmt: skip
    assert tree.sent == [(2, signal.SIGTERM)]
    assert cleanup.ended == 1
    assert cleanup.signals[0][0] >= 11.0


def test_polite_processes_get_term_once_and_no_kill():
    tree = Tree({1: BOTH, 2: BOTH})
    cleanup = end(tree)

    assert cleanup.signals == ((10.0, "SIGTERM", 2),)
    assert cleanup.ended == 2


def test_a_deaf_process_is_killed_when_the_grace_is_over_and_not_before():
    clock = FakeClock(100.0)
    cleanup = end(Tree({1: KILL}), grace_s=5.0, clock=clock)

    assert [(name, count) for _, name, count in cleanup.signals] == [("SIGTERM", 1), ("SIGKILL", 1)]
    assert 15.0 <= cleanup.signals[1][0] <= 15.1
    assert cleanup.gone


def test_without_grace_nobody_is_asked():
    cleanup = end(Tree({1: BOTH}), grace_s=0.0)

    assert [name for _, name, _ in cleanup.signals] == ["SIGKILL"]


def test_a_stopped_process_gets_cont_after_term():
    tree = Tree({1: BOTH, 2: KILL}, states={2: "T"})
    end(tree)

    assert tree.sent.index((2, signal.SIGTERM)) < tree.sent.index((2, signal.SIGCONT))
    assert (1, signal.SIGCONT) not in tree.sent


def test_what_is_forked_while_we_look_is_found_in_the_next_round():
    tree = Tree({1: BOTH}, forks={1: 2})
    cleanup = end(tree)

    assert cleanup.gone
    assert cleanup.ended == 2


def test_an_empty_list_that_is_not_confirmed_is_looked_at_again():
    answers = iter([False, False, True])
    cleanup = end(Tree({}), confirm=lambda: next(answers))

    assert cleanup.gone
    assert next(answers, None) is None


def test_a_process_on_its_way_out_that_is_listed_no_more_is_waited_for():
    clock = FakeClock(100.0)
    tree = Tree({1: BOTH})
    tree.leaving = tree.live()  # the kernel still shows it, without an environment to find it by
    clock.at(3.0, tree.leaving.clear)
    cleanup = end(tree, clock=clock)

    assert cleanup.gone
    assert cleanup.ended == 1
    assert clock.now() - 100.0 >= 3.0


def test_what_kill_does_not_end_is_named_and_given_up_after_the_limit():
    clock = FakeClock(100.0)
    tree = Tree({7: set()}, states={7: "D"})
    cleanup = end(tree, grace_s=1.0, clock=clock)

    assert not cleanup.gone
    assert list(map(str, cleanup.survivors)) == ["PID 7 in state D (io_schedule): p7"]
    assert cleanup.ended == 0
    assert 1.0 + KILL_LIMIT_S <= clock.now() - 100.0 <= 1.2 + KILL_LIMIT_S


def test_what_was_killed_and_has_not_had_the_cpu_since_is_waited_for():
    clock = FakeClock(100.0)
    tree = Tree({7: set()}, states={7: "R"})
    clock.at(4 * KILL_LIMIT_S, tree.ends_on.clear)

    assert end(tree, grace_s=1.0, clock=clock).gone


def test_what_runs_in_spite_of_kill_is_named_and_given_up_at_last():
    clock = FakeClock(100.0)
    tree = Tree({7: set()}, states={7: "R"})

    assert [s.state for s in end(tree, grace_s=1.0, clock=clock).survivors] == ["R"]
    assert clock.now() - 100.0 <= 1.2 + RUNNABLE_LIMIT_S
