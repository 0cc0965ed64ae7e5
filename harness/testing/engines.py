"""The contract of an engine and of the agents that it places: ``CHECKS``, each ``check(engine, tmp_path)``.

Faults are made from this machine: an agent and what it runs are found by the run's token in their environment, also in
namespaces of their own; the network is a relay between agents and head that can be cut and healed. So the checks need
an engine whose nodes are processes of this machine, as the clusters of ``harness.testing.cluster`` are.
``CLUSTER_CHECKS``, each ``check(engine, tmp_path, cluster)``, are faults of such a cluster's nodes: the engine's daemon
is killed, the node is, its cable is pulled out and plugged in again.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from harness.clock import WallClock
from harness.cluster.head import AGENT, Head, no_more
from harness.cluster.joint import Crew
from harness.cluster.wire import HEADS, TOKEN
from harness.conduct import Conducted, Parts, conduct
from harness.core.outcome import Exit
from harness.core.point import Point
from harness.core.trial import Budget, Limit, Trial
from harness.core.verdict import Kind
from harness.launch import procs
from harness.launch.local import LocalExecutor
from harness.settings import MARK, processes_with
from harness.targets.script import ScriptTarget
from harness.testing.executors import await_

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from harness.core.ports import Engine
    from harness.testing.cluster import Cluster

GONE_S = 30.0
"""How long anything may be left after anybody's end."""

PATIENCE_S = 120.0
PROGRAMS = {
    "waits": "import signal; print('waits', flush=True); signal.pause()",
    "works": "import time\nfor n in range({n}): print('step', n, flush=True); time.sleep(0.25)",
    "stuck": "import threading\nprint('begins', flush=True)\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "floods": "import sys\nfor n in range(400_000): sys.stdout.write(f'{n} ' + 100 * 'x' + chr(10))",
    "orphans": "import os, signal, time\nprint('begins', flush=True)\nif os.fork() == 0:\n    os.setsid()\n"
    "    if os.fork() == 0:\n        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n        time.sleep(600)\n"
    "    os._exit(0)\nos.wait()",
    "pair": """
import os, socket, sys, threading
rank, where = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    peer = socket.create_server(("", where[1])).accept()[0]
else:
    import time
    for _ in range(200):
        try:
            peer = socket.create_connection(where)
            break
        except OSError:
            time.sleep(0.1)
for step in range(3):
    print("step", step, flush=True)
    if step == 2 and rank == {odd}:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    peer.sendall(b"x")
    assert peer.recv(1) == b"x"
""",
}


def trial(code: str, *, n: int = 0) -> Trial:
    """A trial that runs ``code`` in a fresh interpreter."""
    limit = Limit(seconds=60.0, source="check")
    target = ScriptTarget(python=sys.executable)
    return Trial(
        target="command",
        point=Point(),
        repeat=n,
        role="search",
        config=target.config({"command": "python3 -c {code}", "args.code": code}),
        seed=0,
        code="check",
        machine="check",
        budget=Budget(startup=limit, stall=limit, total=Limit(seconds=300.0, source="check")),
    )


class Relay:
    """Stands between agents and the head, and can stop passing anything on."""

    def __init__(self, port: int) -> None:
        self.cut = Event()
        self._port, self._closed = port, False
        self._listener = socket.create_server(("", 0), backlog=16)
        self.port = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                Thread(target=self._pass_on, args=(near,), daemon=True).start()

    def _pass_on(self, near: socket.socket) -> None:
        with near, suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as far:
            other = {near: far, far: near}
            while not self._closed:
                if self.cut.is_set():
                    time.sleep(0.05)  # noqa: TID251 - nothing passes meanwhile
                    continue
                for ready in select.select([near, far], [], [], 0.05)[0]:
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    other[ready].sendall(data)

    def close(self) -> None:
        """Let nobody through any more."""
        self._closed = True
        no_more(self._listener)


class Stage:
    """A head with agents of ``engine``; everything of it carries ``mark``."""

    def __init__(self, engine: Engine, tmp_path: Path, *, nodes: int) -> None:
        self.mark, self.tmp_path, self.nodes = secrets.token_hex(8), tmp_path, nodes
        self.head = Head()
        port = self.head.addresses.rpartition(":")[2]
        self.relay = Relay(int(port))
        env = {HEADS: self.head.addresses.replace(f":{port}", f":{self.relay.port}"), TOKEN: self.head.token}
        self.placement = self.head.placement = engine.place(AGENT, env=env, nodes=nodes)

    def run(self, code: str, *, spans: int = 1, n: int = 0) -> Conducted:
        """One trial, to its end."""
        clock = WallClock()
        with closing(LocalExecutor()) as executor:
            parts = Parts(
                target=ScriptTarget(python=sys.executable),
                executor=executor,
                sources=(),
                clock=clock,
                child_env={"PATH": f"{Path(sys.executable).parent}:{os.defpath}", MARK: self.mark},
                elsewhere=Crew(self.head, executor="local", nodes=spans, clock=clock),
            )
            return conduct(trial(code, n=n), trial_dir=self.tmp_path / f"trial{secrets.token_hex(4)}", parts=parts)

    def agents(self) -> list[int]:
        """The PIDs of the agents themselves, here."""
        return list(filter(_is_agent, _carrying(TOKEN, self.head.token)))

    def of_trials(self) -> list[int]:
        """The live processes of trials."""
        return _carrying(MARK, self.mark)

    def busy_host(self) -> str:
        """The host of the agent that runs a trial."""
        return next(member for member in self.head.members if member.busy).node.host

    def close(self) -> None:
        """End it all."""
        self.head.close()
        self.placement.stop()
        self.relay.close()


def _carrying(name: str, value: str) -> list[int]:
    """The PIDs of the processes whose variable ``name`` has this value."""
    return [pid for pid, own in processes_with(name) if own == value]


@contextmanager
def staged(engine: Engine, tmp_path: Path, *, nodes: int = 1) -> Generator[Stage]:
    """A stage; when it is left nothing of its trials and agents is there."""
    stage = Stage(engine, tmp_path, nodes=nodes)
    try:
        yield stage
    finally:
        stage.close()
    await_(lambda: not stage.of_trials() and not stage.agents(), "something was left behind", limit_s=GONE_S)


def _is_agent(pid: int) -> bool:
    """Whether it is an agent, and not the client that holds it or what becomes one."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        return tuple(map(bytes.decode, words)) == AGENT
    return False


def check_exits_and_signals(engine: Engine, tmp_path: Path) -> None:
    """How a program ends arrives as it was, and a file that it wrote beside it."""
    with staged(engine, tmp_path) as stage:
        assert stage.run("print('done')").verdict.kind is Kind.PASS
        assert stage.run("import sys; sys.exit(3)").outcome.exit == Exit(code=3)
        assert stage.run("import os; os.kill(os.getpid(), 11)").outcome.exit == Exit(signal=11)
    texts = [path.read_text() for path in tmp_path.glob("trial*/stdout.txt")]
    assert "done\n" in texts


def check_floods(engine: Engine, tmp_path: Path) -> None:
    """Forty megabytes of output neither hang anybody nor come back whole."""
    with staged(engine, tmp_path) as stage:
        done = stage.run(PROGRAMS["floods"])
        assert done.verdict.kind is Kind.PASS
        assert any(log.dropped_bytes for log in done.evidence.logs)


def check_orphans(engine: Engine, tmp_path: Path) -> None:
    """A deaf grandchild in a session of its own does not outlive its trial."""
    with staged(engine, tmp_path) as stage:
        done = stage.run(PROGRAMS["orphans"])
        assert done.outcome.cleanup.ended >= 1
        assert done.outcome.cleanup.gone
        assert not stage.of_trials()


def check_looks_while_it_hangs(engine: Engine, tmp_path: Path) -> None:
    """A deadlock is told with its line, by an agent that goes on answering."""
    with staged(engine, tmp_path) as stage:
        done = stage.run(PROGRAMS["stuck"])
        assert done.verdict.kind is Kind.HANG, done.verdict.because
        assert done.evidence.stacks
        assert done.evidence.nodes[0].host


def check_a_trial_that_spans_nodes(engine: Engine, tmp_path: Path) -> None:
    """Ranks on two nodes meet; when one is stuck, the whole is a hang and that rank is named."""
    with staged(engine, tmp_path, nodes=2) as stage:
        good = stage.run(PROGRAMS["pair"].replace("{odd}", "-1"), spans=2)
        assert good.verdict.kind is Kind.PASS, good.verdict.because
        assert len(good.evidence.nodes) == 2
        bad = stage.run(PROGRAMS["pair"].replace("{odd}", "1"), spans=2)
        assert (bad.verdict.kind, bad.verdict.rank) == (Kind.HANG, 1), bad.verdict.because
        assert not stage.of_trials()


def check_agent_killed(engine: Engine, tmp_path: Path) -> None:
    """A killed agent takes its trial with it, which says nothing about the program; another node runs the next one."""
    with staged(engine, tmp_path, nodes=2) as stage, ThreadPoolExecutor(1) as pool:
        running = pool.submit(stage.run, PROGRAMS["waits"])
        await_(stage.of_trials, "the trial did not begin")
        await_(lambda: len(stage.head.members) == 2, "an agent is missing")
        host = stage.busy_host()
        trials = stage.of_trials()
        victim = [pid for pid in stage.agents() if any(process.pid in trials for process in procs.below(pid))]
        os.kill(victim[0], signal.SIGKILL)
        await_(lambda: not stage.of_trials(), "the trial outlived its agent", limit_s=GONE_S)
        done = running.result(GONE_S)
        assert done.verdict.kind is Kind.INFRA, done.verdict.because
        assert host in done.outcome.why
        assert stage.run("print('done')").verdict.kind is Kind.PASS


def check_head_killed(engine: Engine, tmp_path: Path) -> None:
    """When the head is killed nothing of its trials and agents is left 30 s later."""
    code = (
        "import sys; from pathlib import Path; from harness.cluster import ENGINES;"
        "from harness.testing import engines;"
        "stage = engines.Stage(ENGINES.load(sys.argv[1])(), Path(sys.argv[2]), nodes=1);"
        "print(stage.mark, stage.head.token, flush=True); stage.run(engines.PROGRAMS['waits'])"
    )
    command = [sys.executable, "-c", code, engine.name, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as head:
        assert head.stdout is not None
        mark, token = head.stdout.readline().split()
        try:
            await_(lambda: _carrying(MARK, mark), "the trial did not begin")
        finally:
            head.kill()

    def left() -> list[int]:
        return _carrying(MARK, mark) + _carrying(TOKEN, token)

    await_(lambda: not left(), "something outlived the head", limit_s=GONE_S)


def check_a_short_cut_loses_nothing(engine: Engine, tmp_path: Path) -> None:
    """Four seconds without network: the trial passes, and ran once."""
    with staged(engine, tmp_path) as stage, ThreadPoolExecutor(1) as pool:
        running = pool.submit(stage.run, PROGRAMS["works"].replace("{n}", "32"))
        await_(stage.of_trials, "the trial did not begin")
        stage.relay.cut.set()
        time.sleep(4.0)  # noqa: TID251 - the length of the cut
        stage.relay.cut.clear()
        done = running.result(PATIENCE_S)
        assert done.verdict.kind is Kind.PASS, done.verdict.because
        assert [log.text.count("step 0\n") for log in done.evidence.logs if log.stream == "stdout"] == [1]


def check_a_long_cut_ends_the_trial_and_heals(engine: Engine, tmp_path: Path) -> None:
    """A cut that lasts ends the trial on both sides; when it heals the node is there again."""
    with staged(engine, tmp_path) as stage, ThreadPoolExecutor(1) as pool:
        running = pool.submit(stage.run, PROGRAMS["waits"])
        await_(stage.of_trials, "the trial did not begin")
        stage.relay.cut.set()
        await_(lambda: not stage.of_trials(), "the trial outlived the connection", limit_s=GONE_S)
        done = running.result(GONE_S)
        assert done.verdict.kind is Kind.INFRA, done.verdict.because
        stage.relay.cut.clear()
        assert stage.run("print('done')").verdict.kind is Kind.PASS


def _lose(engine: Engine, tmp_path: Path, cluster: Cluster, *, how: Callable[[str], None], goes_on: bool) -> None:
    """Do something to the node that runs a trial: it says nothing of the program, or passes once where it ``goes_on``.

    Nothing is left of it, and the other node runs the next trial.
    """
    marks = tmp_path / "began"
    code = f"open({str(marks)!r}, 'a').write('x')\n" + PROGRAMS["works"].replace("{n}", "120")
    with staged(engine, tmp_path, nodes=2) as stage, ThreadPoolExecutor(1) as pool:
        await_(lambda: len(stage.head.members) == 2, "an agent is missing")
        running = pool.submit(stage.run, code)
        await_(stage.of_trials, "the trial did not begin")
        await_(marks.exists, "the program did not begin")
        how(stage.busy_host())
        if not goes_on:
            await_(lambda: not stage.of_trials(), "the trial outlived its node", limit_s=GONE_S)
        done = running.result(PATIENCE_S)
        assert done.verdict.kind in ({Kind.PASS, Kind.INFRA} if goes_on else {Kind.INFRA}), done.verdict.because
        assert marks.read_text() == "x", "it ran twice"
        assert stage.run("print('done')").verdict.kind is Kind.PASS


def check_daemon_killed(engine: Engine, tmp_path: Path, cluster: Cluster) -> None:
    """SIGKILL to slurmd or the raylet: a trial below it ends with it, or goes on under its agent, and ran once."""
    _lose(engine, tmp_path, cluster, how=cluster.kill_daemon, goes_on=True)


def check_cable_pulled(engine: Engine, tmp_path: Path, cluster: Cluster) -> None:
    """A node without its network ends its trial, which says nothing; plugged in again it is a node as before."""
    try:
        _lose(engine, tmp_path, cluster, how=cluster.cut, goes_on=False)
    finally:
        for node in cluster.inits:
            cluster.heal(node)


def check_node_killed(engine: Engine, tmp_path: Path, cluster: Cluster) -> None:
    """A node that is gone takes its trial with it, which says nothing. It stays gone: the cluster's last check."""
    _lose(engine, tmp_path, cluster, how=cluster.kill_node, goes_on=False)


CHECKS = (
    check_exits_and_signals,
    check_floods,
    check_orphans,
    check_looks_while_it_hangs,
    check_a_trial_that_spans_nodes,
    check_agent_killed,
    check_head_killed,
    check_a_short_cut_loses_nothing,
    check_a_long_cut_ends_the_trial_and_heals,
)

CLUSTER_CHECKS = (check_daemon_killed, check_cable_pulled, check_node_killed)
