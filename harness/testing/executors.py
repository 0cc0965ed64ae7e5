"""The contract of an executor: ``check_executor(make_executor, tmp_path)``.

Every check starts real processes and waits for what they say on a FIFO, never for time to pass. ``make_executor``
is any callable that pickles (a class, a ``functools.partial``), because one check runs it in a controller of its own
that is then killed.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import runpy
import select
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.clock import WallClock
from harness.core.command import Command
from harness.core.errors import LaunchError
from harness.launch import procs
from harness.store import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from harness.core.outcome import Cleanup, Exit
    from harness.core.ports import Executor, Handle, ProcessRef
    from harness.launch.procs import Process

T = TypeVar("T")

PATIENCE_S = 60.0
"""When a check gives up waiting for something that must come; no check takes this long unless it fails."""

ENV = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "GREETING": "hello"}

# What the programs of the checks may use: ``say`` sends a line to the check, ``me`` names a process for ever.
_PRELUDE = """
import json, os, signal, sys, threading
from pathlib import Path
HERE = Path(__file__).parent
def say(**facts):
    with open(HERE / "ear", "w") as ear:
        ear.write(json.dumps(facts) + "\\n")
def wait():
    while True:
        signal.pause()
def detached(work):
    # A grandchild that is nobody's child and leads a session of its own.
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            work()
        os._exit(0)
    os.waitpid(child, 0)
"""

_NASTY = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def deaf():
    say(who="deaf grandchild", pid=os.getpid())
    wait()
def stripped():
    code = "import os, signal, sys; open(sys.argv[1], 'w').write(sys.argv[2] % os.getpid()); signal.pause()"
    line = '{"who": "stripped grandchild", "pid": %d}\\n'
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code, str(HERE / "ear"), line], {})
detached(deaf)
detached(stripped)
frozen = os.fork()
if frozen == 0:
    os.setpgid(0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    wait()
os.waitpid(frozen, os.WUNTRACED)
say(who="frozen child", pid=frozen)
say(who="deaf worker", pid=os.getpid())
wait()
"""
"""A worker deaf to TERM, a deaf grandchild in another session, one with an empty environment, a stopped child."""

_NASTY_SIZE = 4


class Ear:
    """Hears what the programs of one trial ``say``."""

    def __init__(self, trial_dir: Path) -> None:
        path = trial_dir / "ear"
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # open for writing too: never at its end
        self._rest = b""

    def hear(self) -> dict[str, Any]:
        """The next line, waiting for it."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._fd], [], [], PATIENCE_S)
            assert ready, "the trial's program said nothing"
            self._rest += os.read(self._fd, 1 << 16)
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def hear_processes(self, count: int) -> list[Process]:
        """The processes that ``count`` lines name by PID, as /proc shows them now."""
        pids = [self.hear()["pid"] for _ in range(count)]
        return list(filter(None, map(procs.read, pids)))

    def close(self) -> None:
        """Give the FIFO back."""
        os.close(self._fd)


def run_program(trial_dir: str) -> None:
    """Run the trial's program in this process: the entry of executors that fork."""
    runpy.run_path(str(Path(trial_dir) / "program.py"), run_name="__main__")


def program(trial_dir: Path, code: str, **changes: object) -> Command:
    """The command that runs ``code`` in ``trial_dir``, forked or executed."""
    command: dict[str, Any] = {
        "argv": (sys.executable, "-P", str(trial_dir / "program.py")),
        "env": tuple(sorted(ENV.items())),
        "trial_dir": str(trial_dir),
        "files": (("program.py", _PRELUDE + code),),
        "entry": "harness.testing.executors:run_program",
        **changes,
    }
    return Command(**command)


@contextmanager
def running(executor: Executor, trial_dir: Path, code: str, **changes: object) -> Generator[tuple[Handle, Ear]]:
    """A trial that runs ``code``, its ear, and no process of it afterwards, however the check ends."""
    trial_dir.mkdir(parents=True)
    with closing(Ear(trial_dir)) as ear:
        handle = executor.start(program(trial_dir, code, **changes))
        try:
            yield handle, ear
        finally:
            stop(handle, grace_s=0.0)


def await_(holds: Callable[[], T | None], what: str, *, limit_s: float = 120.0, between_s: float = 0.1) -> T:
    """What ``holds`` gives once it gives something; it is asked every ``between_s``, for ``limit_s`` at most."""
    clock = WallClock()
    until_s = clock.now() + limit_s
    while not (answer := holds()):
        assert clock.now() < until_s, what
        clock.sleep(between_s)
    return answer


def wait_exit(handle: Handle) -> Exit:
    """How the trial ended by itself, waiting for it."""
    return await_(handle.poll, "the trial did not end", limit_s=PATIENCE_S, between_s=0.002)


def stop(handle: Handle, *, grace_s: float) -> Cleanup:
    """Stop with the real clock."""
    return handle.stop(grace_s=grace_s, clock=WallClock())


def is_gone(process: Process) -> bool:
    """Whether exactly this process is dead."""
    return not procs.same(process)


def alive(processes: list[Process]) -> list[Process]:
    """Those that are not dead."""
    return list(filter(procs.same, processes))


def wait_gone(processes: list[Process]) -> None:
    """Wait until all of them are dead."""
    await_(lambda: not alive(processes), f"some are still there: {processes}", limit_s=PATIENCE_S, between_s=0.002)


def _signals(cleanup: Cleanup) -> list[str]:
    """The names of the signals that were sent, in order."""
    return [name for _, name, _ in cleanup.signals]


def _identities(processes: Iterable[Process | ProcessRef]) -> set[tuple[int, int]]:
    """What tells processes apart, also from later ones with the same PID."""
    return {(process.pid, process.started) for process in processes}


# --- the checks ----------------------------------------------------------------------------------------------------


def check_exit_codes(executor: Executor, tmp_path: Path) -> None:
    """The exit code comes back as it was; output is complete by then; nothing is left."""
    for code in (0, 7):
        with running(executor, tmp_path / f"exit{code}", f"print('out'); sys.exit({code})") as (handle, _):
            ended = wait_exit(handle)
            assert (ended.code, ended.signal) == (code, None)
            assert layout.output(tmp_path / f"exit{code}", "stdout").read_bytes() == b"out\n"
            assert handle.processes() == ()
            cleanup = stop(handle, grace_s=5.0)
            assert cleanup.gone
            assert (cleanup.signals, cleanup.ended) == ((), 0)
            assert handle.poll() == ended
            assert stop(handle, grace_s=5.0) == cleanup


def check_signals_that_kill(executor: Executor, tmp_path: Path) -> None:
    """A death by signal comes back as that signal."""
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
        with running(executor, tmp_path / number.name, f"os.kill(os.getpid(), {int(number)}); wait()") as (handle, _):
            ended = wait_exit(handle)
            assert (ended.code, ended.signal) == (None, number)


def check_missing_program(executor: Executor, tmp_path: Path) -> None:
    """A program that is not there is a LaunchError that names it, and the next trial starts."""
    missing = program(tmp_path / "missing", "", argv=("/no/such/program",), entry="no_such_module:run")
    said = None
    try:
        stop(executor.start(missing), grace_s=0.0)
    except LaunchError as error:
        said = str(error)
    assert said is not None, "a missing program was started"
    assert "/no/such/program" in said or "no_such_module" in said, said
    with running(executor, tmp_path / "next", "sys.exit(3)") as (handle, _):
        assert wait_exit(handle).code == 3


def check_surroundings(executor: Executor, tmp_path: Path) -> None:
    """Environment: the command's and the token. No input, our folder, its own session, default signals, the limit."""
    limit = 4 << 30
    code = """
import resource
say(
    env=dict(os.environ), at_exec=Path("/proc/self/environ").read_bytes().decode().split("\\0")[:-1],
    stdin=sys.stdin.read(), cwd=os.getcwd(), leads=os.getsid(0) == os.getpid(),
    limit=resource.getrlimit(resource.RLIMIT_AS),
    inherited=[int(n) for n in os.listdir("/proc/self/fd") if int(n) > 2 and Path("/proc/self/fd", n).is_symlink()],
    ignored=[s.name for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
             if signal.getsignal(s) is signal.SIG_IGN],
)
"""
    with running(executor, tmp_path / "surroundings", code, max_address_space_bytes=limit) as (_, ear):
        heard = ear.hear()
    env = heard["env"]
    token = env.pop(procs.TOKEN)
    assert env == ENV
    assert f"{procs.TOKEN}={token}" in heard["at_exec"], "the search by token would not find this process"
    assert heard["stdin"] == ""
    assert heard["cwd"] == str(Path.cwd())
    assert heard["leads"] is True
    assert heard["limit"] == [limit, limit]
    assert heard["ignored"] == []
    assert heard["inherited"] == [], "a descriptor of ours that a trial holds open can keep us waiting"


def check_bounded_output(executor: Executor, tmp_path: Path) -> None:
    """Of 10 MB the beginning and the end are kept, within the bound, and the rest is counted."""
    bound, line = 1_000_000, b"%09d\n"
    count = 1_000_000
    code = f"""
for stream in (sys.stdout, sys.stderr):
    for start in range(0, {count}, 1000):
        stream.write("".join("%09d\\n" % i for i in range(start, start + 1000)))
"""
    folder = tmp_path / "flood"
    with running(executor, folder, code, max_output_bytes=bound) as (handle, _):
        assert wait_exit(handle).code == 0
        for stream in ("stdout", "stderr"):
            head = layout.output(folder, stream).read_bytes()
            tail = layout.output_tail(folder, stream).read_bytes()
            assert len(head) == bound // 2
            assert len(head) + len(tail) <= bound
            assert head.startswith(line % 0)  # pyrefly: ignore[division-by-zero]
            assert tail.endswith(line % (count - 1))
            mark = re.match(rb"\[\.\.\. (\d+) bytes dropped \.\.\.\]\n", tail)
            assert mark is not None, tail[:60]
            assert len(head) + int(mark[1]) + len(tail) - mark.end() == count * len(line % 0)  # pyrefly: ignore[division-by-zero]


def check_end_of_the_program(executor: Executor, tmp_path: Path) -> None:
    """A program that returns is not over yet: threads that still work, then exit handlers, then what was printed."""
    code = """
import atexit
atexit.register(lambda: print("handler"))
go = threading.Event()
threading.Thread(target=lambda: (go.wait(), print("thread"))).start()
say(pid=os.getpid())
threading.Timer(0.01, go.set).start()
"""
    folder = tmp_path / "end"
    with running(executor, folder, code) as (handle, ear):
        ear.hear()
        assert wait_exit(handle).code == 0
        assert layout.output(folder, "stdout").read_text() == "thread\nhandler\n"


def check_held_pipe(executor: Executor, tmp_path: Path) -> None:
    """A grandchild that keeps the pipe open delays neither the end nor the output, and is collected after it."""
    code = """
def hold():
    say(pid=os.getpid())
    wait()
print("before")
detached(hold)
sys.stdout.flush()
os._exit(0)
"""
    folder = tmp_path / "held"
    with running(executor, folder, code) as (handle, ear):
        (holder,) = ear.hear_processes(1)
        assert wait_exit(handle).code == 0
        assert b"before\n" in layout.output(folder, "stdout").read_bytes()
        assert [ref.pid for ref in handle.processes()] == [holder.pid]
        cleanup = stop(handle, grace_s=PATIENCE_S)
        assert cleanup.ended == 1
        assert _signals(cleanup) == ["SIGTERM"]
        assert is_gone(holder)


def check_polite_end(executor: Executor, tmp_path: Path) -> None:
    """A program that heeds TERM ends its own way: its exit code, its last words, no KILL."""
    code = """
def leave(*_):
    print("bye")
    sys.exit(5)
signal.signal(signal.SIGTERM, leave)
say(pid=os.getpid())
wait()
"""
    folder = tmp_path / "polite"
    with running(executor, folder, code) as (handle, ear):
        ear.hear()
        assert handle.poll() is None
        cleanup = stop(handle, grace_s=PATIENCE_S)
        assert _signals(cleanup) == ["SIGTERM"]
        ended = handle.poll()
        assert ended is not None
        assert ended.code == 5
        assert layout.output(folder, "stdout").read_bytes() == b"bye\n"


def check_nasty_tree(executor: Executor, tmp_path: Path) -> None:
    """Deaf, detached, stripped of its environment, stopped: ``processes`` lists all, ``stop`` ends all."""
    with running(executor, tmp_path / "nasty", _NASTY) as (handle, ear):
        members = ear.hear_processes(_NASTY_SIZE)
        assert len(members) == _NASTY_SIZE
        assert _identities(members) == _identities(handle.processes())
        cleanup = stop(handle, grace_s=0.2)
        assert handle.processes() == ()
        assert alive(members) == []
        assert cleanup.gone
        assert cleanup.ended == _NASTY_SIZE
        assert {"SIGTERM", "SIGCONT", "SIGKILL"} <= set(_signals(cleanup))
        ended = handle.poll()
        assert ended is not None
        assert ended.signal == signal.SIGKILL


def check_signal(executor: Executor, tmp_path: Path) -> None:
    """``signal`` reaches the worker and nobody else; when it is gone, nothing happens."""
    code = """
got = threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: got.set())
say(pid=os.getpid())
got.wait()
say(got="SIGUSR1", pid=os.getpid())
"""
    with running(executor, tmp_path / "signal", code) as (handle, ear):
        assert ear.hear()["pid"] == handle.pid
        handle.signal(signal.SIGUSR1)
        assert ear.hear() == {"got": "SIGUSR1", "pid": handle.pid}
        wait_exit(handle)
        handle.signal(signal.SIGUSR1)
        stop(handle, grace_s=0.0)
        handle.signal(signal.SIGUSR1)


def check_two_at_once(executor: Executor, tmp_path: Path) -> None:
    """Trials do not see each other's processes, and ending one leaves the other alone."""
    code = "detached(lambda: (say(pid=os.getpid()), wait())); say(pid=os.getpid()); wait()"
    with (
        running(executor, tmp_path / "one", code) as (one, ear_one),
        running(executor, tmp_path / "two", code) as (two, ear_two),
    ):
        members_one, members_two = ear_one.hear_processes(2), ear_two.hear_processes(2)
        assert _identities(one.processes()) == _identities(members_one)
        assert _identities(two.processes()) == _identities(members_two)
        stop(one, grace_s=0.0)
        assert all(map(is_gone, members_one))
        assert not any(map(is_gone, members_two))
        assert two.poll() is None


def check_close(make_executor: Callable[[], Executor], tmp_path: Path) -> None:
    """``close`` ends running trials and every server."""
    before = {p.pid for p in procs.descendants(os.getpid(), procs.everything())}
    executor = make_executor()
    (tmp_path / "close").mkdir()
    with closing(Ear(tmp_path / "close")) as ear:
        executor.start(program(tmp_path / "close", _NASTY))
        ear.hear_processes(_NASTY_SIZE)
        ours = [p for p in procs.descendants(os.getpid(), procs.everything()) if p.pid not in before]
        assert len(ours) > _NASTY_SIZE
        executor.close()
        assert alive(ours) == []


def check_killed_controller(make_executor: Callable[[], Executor], tmp_path: Path) -> None:
    """``kill -9`` of the controller leaves no process: not the nasty tree, not a supervisor, not a server."""
    folder = tmp_path / "killed"
    folder.mkdir()
    recipe = pickle.dumps(make_executor).hex()
    code = "import sys; from harness.testing.executors import controller; controller(*sys.argv[1:])"
    with closing(Ear(folder)) as ear:
        process = subprocess.Popen([sys.executable, "-P", "-c", code, recipe, str(folder)])
        with process:
            members = ear.hear_processes(_NASTY_SIZE)
            parents = [member.parent for member in members]
            supervisors = list(filter(None, map(procs.read, parents)))
            below = procs.descendants(process.pid, procs.everything())
            process.kill()
            process.wait()
            wait_gone([*members, *below, *supervisors])


def controller(recipe: str, trial_dir: str) -> None:
    """A controller that starts a nasty trial and waits to be killed."""
    executor: Executor = pickle.loads(bytes.fromhex(recipe))()
    executor.start(program(Path(trial_dir), _NASTY))
    select.select([], [], [])


CHECKS: tuple[Callable[[Executor, Path], None], ...] = (
    check_exit_codes,
    check_signals_that_kill,
    check_missing_program,
    check_surroundings,
    check_bounded_output,
    check_end_of_the_program,
    check_held_pipe,
    check_polite_end,
    check_nasty_tree,
    check_signal,
    check_two_at_once,
)
"""Checks that share one executor."""

LIFE_CHECKS: tuple[Callable[[Callable[[], Executor], Path], None], ...] = (check_close, check_killed_controller)
"""Checks of an executor's own end."""


def check_executor(make_executor: Callable[[], Executor], tmp_path: Path) -> None:
    """All checks, for executors of other distributions; an AssertionError says what does not hold."""
    executor = make_executor()
    try:
        for check in CHECKS:
            check(executor, tmp_path)
    finally:
        executor.close()
    for life_check in LIFE_CHECKS:
        life_check(make_executor, tmp_path)
