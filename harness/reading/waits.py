"""The table of waits: what a blocked thread waits for, and who can end that.

Whether a standstill is a hang depends on one question: can anybody still end it? A lock inside the process can be given
back only by another thread of it. A pipe is ended by whoever holds its other end, and ``/proc`` says who of the trial
does. A lock on a file may be held by a program that we know nothing of, and that gives it back in half a minute. So the
table has, for every kind of wait, who can end it when nothing more is known; and what the observer found out about the
very wait (``ThreadState.holders``, ``.outside``) comes before that.

This is the only place that matches the names of system calls and kernel functions. The call is the better evidence: the
kernel may hide where a thread sleeps (``/proc/PID/wchan``), and a poll looks alike whatever it polls.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.reading.frames import bare, is_own, is_runtime, is_stdlib, mentions, native_leaf, python_frames
from harness.shim.nsa_harness_shim import AT_ONCE, GENTLY, OF_A_HUNG_TEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.core.evidence import Frame, LoopSample, ProcessState, StackSample, ThreadStack, ThreadState


class Ender(StrEnum):
    """Who can end a wait."""

    PROCESS = "another thread of the process"
    JOB = "another process of the job"
    PROGRAM = "another program"
    MACHINE = "another machine"
    DEVICE = "a device"
    TIMER = "a timer"
    TICKING = "a thread that wakes again and again"
    SOMEBODY = "whoever stopped it"
    UNKNOWN = "nobody knows who"


OUTSIDE = frozenset(
    {Ender.PROGRAM, Ender.MACHINE, Ender.DEVICE, Ender.TIMER, Ender.TICKING, Ender.SOMEBODY, Ender.UNKNOWN}
)
"""Enders that do not belong to the job: while one of them may act, a standstill is not certain to last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What a thread waits for: ``cause`` is what a hang in it is called, ``enders`` who can end it.

    ``holders`` are the processes of the trial that can; ``what`` says it in words, ``a lock on a file``.
    """

    cause: str
    what: str
    enders: frozenset[Ender]
    holders: tuple[int, ...] = ()

    @property
    def outside(self) -> frozenset[Ender]:
        """Who can end it that does not belong to the job."""
        return self.enders & OUTSIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of wait. ``calls`` are system calls, ``kernel`` matches the kernel function that the thread sleeps in.

    ``ender`` is who can end it when nothing more is known. ``shared`` says that processes of the trial may: then those
    that hold the other end can, and nobody else, unless somebody outside was seen to hold it too.
    """

    what: str
    cause: str
    ender: Ender
    kernel: str = r"$^"
    calls: frozenset[str] = frozenset()
    shared: bool = False


def _calls(text: str) -> frozenset[str]:
    return frozenset(text.split())


OWN_SERVICE = "accept-own"
"""In place of the call of a thread that waits for connections at an address which the program alone knows, unless it
gave that to somebody outside."""

OWN_CONNECTION = "a connection of its own"
"""What a thread waits for at a path that multiprocessing made up and tells the program alone."""

ADDRESSES = frozenset({"address", "_address"})
"""Words of a program's source by which it may tell somebody outside where multiprocessing listens."""

DESCRIPTORS = frozenset({"send_fds", "SCM_RIGHTS", "send_handle"})
"""The same, to hand an open descriptor to another program, through a socket: no process has it while it lies there."""

BEGINS = frozenset({"vfork", "clone", "clone3"})
"""The calls of a thread that makes a process and waits, uninterruptible, until that begins its program (vfork)."""

LISTENS = frozenset({"accept", "accept4", OWN_SERVICE})
"""The calls of a thread that waits for connections."""


SHARED_LOCK = "a lock that processes share"

HANDED_ON = ("something in a pipe", "room in a pipe", "a lock on a file")
"""What a process may wait for that one which it started inherits, and still has when it has left the tree."""

FROM_OUTSIDE = frozenset({Ender.PROGRAM, Ender.MACHINE})
"""Enders outside the job that are there for all that is known: they may take their time."""

ROWS = (
    Row(what="another machine's file system", cause="blocked-io", ender=Ender.MACHINE, kernel=r"rpc_|nfs|ceph|cifs|smb2?_"),
    Row(what="a file system that a program serves", cause="blocked-io", ender=Ender.PROGRAM, kernel=r"request_wait_answer|p9_client"),
    Row(what="a child", cause="waiting-for-child", ender=Ender.UNKNOWN, kernel=r"^(do_wait|kernel_wait4)$", calls=_calls("wait4 waitid"), shared=True),
    Row(what="a child to begin its program", cause="waiting-for-child", ender=Ender.UNKNOWN, calls=BEGINS, shared=True),
    Row(what="a lock on a file", cause="blocked-io", ender=Ender.PROGRAM, kernel=r"lock_inode_wait|posix_lock|flock", calls=_calls("flock fcntl"), shared=True),
    Row(what=SHARED_LOCK, cause="deadlock", ender=Ender.PROGRAM, calls=_calls("futex-shared"), shared=True),
    Row(what="room in a pipe", cause="blocked-pipe", ender=Ender.PROGRAM, kernel=r"pipe_write", calls=_calls("pipe-write"), shared=True),
    Row(what="something in a pipe", cause="blocked-io", ender=Ender.PROGRAM, kernel=r"pipe_read", calls=_calls("pipe-read"), shared=True),
    Row(what="the other end of a named pipe", cause="blocked-io", ender=Ender.PROGRAM, kernel=r"wait_for_partner|fifo_open", calls=_calls("open openat"), shared=True),
    Row(what="another machine", cause="blocked-io", ender=Ender.MACHINE, kernel=r"sk_wait|inet_|tcp_|udp_", calls=_calls("socket-inet connect"), shared=True),
    Row(what="a socket, a terminal or a change of files", cause="blocked-io", ender=Ender.PROGRAM, kernel=r"wait_woken", shared=True),
    Row(what="a socket of this machine", cause="blocked-io", ender=Ender.PROGRAM, kernel=r"skb_wait|unix_", calls=_calls("socket-unix accept recvfrom recvmsg sendto sendmsg"), shared=True),
    Row(what="a connection to the program's own service", cause="blocked-io", ender=Ender.PROGRAM, calls=_calls(OWN_SERVICE), shared=True),
    Row(what="an event", cause="blocked-io", ender=Ender.PROGRAM, kernel=r"eventfd_", calls=_calls("eventfd"), shared=True),
    Row(what="one of several descriptors", cause="blocked-io", ender=Ender.PROGRAM, kernel=r"poll|select", calls=_calls("poll ppoll select pselect6 epoll_wait epoll_pwait epoll_pwait2"), shared=True),
    Row(what="a signal", cause="blocked-io", ender=Ender.PROGRAM, kernel=r"sys_pause|sigtimedwait|sigsuspend", calls=_calls("pause rt_sigtimedwait rt_sigsuspend"), shared=True),
    Row(what="a semaphore or message between programs", cause="blocked-io", ender=Ender.PROGRAM, kernel=r"semtimedop|msgrcv|msgsnd|mq_", calls=_calls("semop semtimedop msgrcv msgsnd mq_timedreceive mq_timedsend")),
    Row(what="somebody at a terminal", cause="blocked-io", ender=Ender.PROGRAM, kernel=r"n_tty_read|tty_"),
    Row(what="the kernel's own queue", cause="blocked-io", ender=Ender.DEVICE, kernel=r"io_cqring|io_schedule|folio_wait|wait_on_page", calls=_calls("io_uring_enter io_getevents")),
    Row(what="a lock of the process", cause="native-wait", ender=Ender.PROCESS, kernel=r"futex", calls=_calls("futex futex_waitv")),
)  # fmt: skip
"""The first row that fits counts, by its kernel function, which says more than a call; but first of all by the call where
somebody has looked what that is about (``futex-shared``): a lock that processes share sleeps in the same function."""

UNSEEN = Row(what="something", cause="unseen-wait", ender=Ender.UNKNOWN)

PYTHON_LOCK = ("PyThread_acquire_lock", "lock_PyThread", "rlock_acquire")
NATIVE_LOCK = ("pthread_mutex_lock", "pthread_rwlock", "lll_lock_wait", "std::mutex::lock")
_RUNNERS = "/asyncio/runners.py"
THREAD_STARTS = ("run", "_bootstrap_inner", "_bootstrap")
THREAD_ENDS = ("join", "_wait_for_tstate_lock", "_shutdown")
LOCK_FILES = ("threading.py", "queue.py", "synchronize.py", "queues.py")

_ASKS_AGAIN = (
    ("torch/utils/data/_utils/worker.py", ("_worker_loop",)),
    ("torch/utils/data/_utils/pin_memory.py", ()),
    ("torch/distributed/elastic/agent/", ()),
    ("multiprocessing/managers.py", ("serve_forever",)),
    ("multiprocessing/pool.py", ("_wait_for_updates", "_help_stuff_finish")),
    ("concurrent/futures/process.py", ("wait_result_broken_or_wakeup",)),
    ("xdist/", ()),
    ("execnet/", ()),
    ("accelerate/commands/", ()),
)
"""Files, and functions in them, that ask processes of their own again and again whether they are done: such a wait with
a time limit is a wait for those processes. Where the same file also calls the program's own function (a pool's worker,
the start of a child), only the functions that ask are named: ``time.sleep`` below them has no frame of its own."""

_OF_AN_AGENT = "/torch/distributed/elastic/multiprocessing/"
"""What torch's agent waits by: with no limit of its own, which a program that calls it may give."""

_MAY_ASK_ONCE = (
    ("torch/utils/data/dataloader.py", ("_try_get_data", "_get_data")),
    ("torch/multiprocessing/spawn.py", ("join",)),
    ("multiprocessing/popen_fork.py", ("poll", "wait")),
    ("multiprocessing/popen_spawn_posix.py", ("poll", "wait")),
    ("multiprocessing/popen_forkserver.py", ("poll", "wait")),
    ("multiprocessing/connection.py", ("wait",)),
    ("multiprocessing/pool.py", ("wait", "get")),
)
"""The same of waits whose time limit the program gives. It may mean to do something when that is over (``p.join(30)``,
then ``p.terminate()``): only one that was seen to wake and wait anew asks again. ``subprocess`` is not among them: with a
limit it wakes twenty times a second until that, and cannot be told from what is called again. It counts as a timer."""


RESTART = "restart"
"""The call of a thread that was interrupted in a wait, by a stack dump for example, which the kernel goes on with."""


_SLEEPS = frozenset({"nanosleep", "clock_nanosleep"})
_ANYWHERE = "anywhere"
"""In place of the kernel function of a sleep: some kernels do not say where one that was interrupted goes on."""


def with_calls(looks: Sequence[ProcessState], *, earlier: Sequence[ProcessState] = ()) -> tuple[ProcessState, ...]:
    """The same looks; the last names the call of each thread where the kernel only says that it goes on with one.

    Then the call is that of an earlier look in the same place of the kernel, or the sleep that the thread was in before.
    Only waits with a limit are gone on with in a futex; a poll is in any case. Whoever was stopped in an ``earlier``
    silence, and has been in that call ever since, never shows it again.
    """
    if all(thread.call != RESTART for thread in looks[-1].threads):
        return tuple(looks)
    calls = {**_never_left((*earlier, *looks)), **_latest_calls(looks)}
    last = looks[-1]
    threads = tuple(_with_call(t, calls.get((t.tid, t.wchan)) or calls.get((t.tid, _ANYWHERE))) for t in last.threads)
    return (*looks[:-1], replace(last, threads=threads))


def _latest_calls(looks: Sequence[ProcessState]) -> dict[tuple[int, str], ThreadState]:
    """The last time that each thread was in a call of its own, by its place in the kernel; a sleep's is anywhere."""
    calls: dict[tuple[int, str], ThreadState] = {}
    for look in looks:
        for thread in look.threads:
            if thread.call != RESTART:
                calls[thread.tid, thread.wchan] = thread
            if thread.call in _SLEEPS:
                calls[thread.tid, _ANYWHERE] = thread
    return calls


def _never_left(looks: Iterable[ProcessState]) -> dict[tuple[int, str], ThreadState]:
    """The call in which each thread was last, if all later looks find it going on with one in the same place."""
    calls: dict[int, ThreadState] = {}
    for look in looks:
        for thread in look.threads:
            if thread.call != RESTART:
                calls[thread.tid] = thread
            elif thread.tid in calls and calls[thread.tid].wchan != thread.wchan:
                del calls[thread.tid]
    return {(thread.tid, thread.wchan): thread for thread in calls.values()}


def _with_call(thread: ThreadState, before: ThreadState | None) -> ThreadState:
    if thread.call != RESTART:
        return thread
    if before is None:
        return replace(thread, timed=True) if "futex" in thread.wchan else thread
    return replace(
        thread, call=before.call, timed=before.timed, on=before.on, holders=before.holders, outside=before.outside,
        limit_s=before.limit_s, has_guests=before.has_guests,
    )  # fmt: skip


def is_cut_short_by_a_stop(kernel_function: str) -> bool:
    """Whether a call that waits in this function of the kernel may be half done, so that a stop would end it short.

    A stop is like a signal: it makes a ``write`` that has filled a pipe return what went in so far, which ``os.write``
    hands to a program that may not count. Waits in which nothing is half done are gone on with instead.
    """
    return re.search(r"pipe_write|wait_for_space|alloc_send|stream_wait_memory|unix_wait_for_peer|n_tty_write", kernel_function) is not None  # fmt: skip


CUT_SHORT_BY_A_STOP = frozenset({"write", "writev", "sendto", "sendmsg", "sendfile", "splice"})
"""Calls that wait for room with some of it done, as :func:`is_cut_short_by_a_stop` has it by the kernel's functions."""

ENDED_BY_A_STOP = frozenset(
    {"semop", "semtimedop", "close", "rt_sigtimedwait", "io_getevents", "io_uring_enter", "recvmmsg"}
)
"""Calls that even a stop ends: most with an error, a ``close`` that waits until all is sent before its time, a
``recvmmsg`` with fewer messages."""

EVENTS = frozenset({"epoll_wait", "epoll_pwait", "epoll_pwait2"})
"""Calls that a stop ends with an error as well, which every loop of events in Python or a library begins again."""

_BEGINS_AGAIN = re.compile(r"/lib(32|64)?/(?!(.*/)?libffi)|(^|/)(lib)?python[\d.]*[^/]*$")


def begins_again(caller: str) -> bool:
    """Whether code of this file begins a call again that was ended by a signal: Python's own, a package's, a system's.

    Not what a program calls by ctypes (libffi), and not code that it brings along: who wrote that may never have seen
    a call end so. True of a file that is not known.
    """
    return not caller or _BEGINS_AGAIN.search(caller) is not None


def is_ended_by_a_signal(kernel_function: str) -> bool:
    """Whether a call that waits in this function of the kernel ends when any signal is handled, and is not gone on with.

    Python begins its own calls again; these are for signals, or are made by C code that may take the end for an answer.
    """
    return (
        re.search(r"sys_pause|sigsuspend|sigtimedwait|semtimedop|msgrcv|msgsnd|io_getevents", kernel_function)
        is not None
    )


ASKED_BY = (GENTLY, AT_ONCE)
"""The signals by which we ask a program that carries our shim for its stacks, gently and at once; nobody else uses them."""

OURS = frozenset({*ASKED_BY, OF_A_HUNG_TEST})
"""All signals of which a handler is ours."""

LETS_NOBODY_ON = OURS | {
    signal.SIGINT, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV,
    signal.SIGCHLD, 32, 33,
}  # fmt: skip
"""Signals whose handler does not let a program that waits for a signal go on: the interrupt from the keyboard (Python
handles it in every program, to raise), those of a thread's own mistakes, the two that the C library keeps, and ours. The
end of a child is asked for by itself. ``pause`` returns when a handler of any other has run; a signal without a handler
ends the program, or is nothing to it."""

OF_TIMERS = frozenset({signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF})
"""Signals by which a timer of the program's own may wake its main thread."""

OF_PROGRAMS = frozenset(
    {signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGIO, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)} - OURS
)
"""Signals by which programs tell each other something."""


TIMER = "timer_create"
"""Among the signals that a process handles: it has made a timer that sends it one."""

CPU_LIMIT = "RLIMIT_CPU"
"""The same: the kernel ends it, or sends SIGXCPU, after so much CPU time."""

ALARM = "alarm"
"""Stands among a process's signals where its own source sets an alarm, or its program may have, of which the kernel
tells nobody else."""

SHELLS = frozenset({"bash", "dash", "ksh", "sh", "zsh"})

ONLY_SLEEPS = frozenset({"sleep"})
"""Programs that do nothing when they wake: only who waits for their end may do something then."""

SERVE_MPI = frozenset({"orted", "prted"})
"""Daemons that Open MPI starts beside a program which nobody launched by it: they wait for that program, and for calls."""

ONLY_SHOW = frozenset({"htop", "nvidia-smi", "tail", "top"})
"""Programs that are linked to what sends signals and, left to themselves, only show something now and then."""

SIGNAL_CALLS = frozenset({"pause", "rt_sigsuspend"})
"""Calls that wait for a handler to run in the very thread that made them."""


def sleeps(kernel_function: str) -> bool:
    """Whether a thread that is in this function of the kernel wakes by itself, whatever is known of its call."""
    return "nanosleep" in kernel_function


def wait_of(thread: ThreadState) -> Wait | None:
    """What ``thread`` waits for by what the kernel says of it; None while it runs."""
    if thread.state in "RZX":
        return None
    if thread.state in "Tt":
        what = "to be continued" if thread.state == "T" else "its debugger"
        return Wait(cause="stopped", what=what, enders=frozenset({Ender.SOMEBODY}))
    row = _row(thread.wchan, thread.call, looked_at=thread.outside is not None)
    if thread.timed and row.cause != "waiting-for-child":
        return Wait(cause="timed-wait", what="a time limit", enders=frozenset({Ender.TIMER}), holders=thread.holders)
    by_child = row.calls == BEGINS and thread.holders
    if thread.state == "D" and row.ender not in (Ender.MACHINE, Ender.PROGRAM) and not by_child:
        return Wait(cause="uninterruptible-io", what="a device", enders=frozenset({Ender.DEVICE}))
    enders = {row.ender}
    if thread.timed is None and row.ender is Ender.PROCESS:
        enders.add(Ender.UNKNOWN)  # it may have a time limit that nobody could see
    if row.shared and thread.outside is not None:
        # Somebody has looked who holds the other end: whoever of the trial does, and the outside only if it may.
        enders.clear()
        if thread.holders:
            enders.add(Ender.JOB)
        if thread.outside:
            enders.add(row.ender)
    what = thread.on or row.what
    return Wait(cause=row.cause, what=what, enders=frozenset(enders), holders=thread.holders)


@lru_cache(maxsize=4096)
def _row(wchan: str, call: str, *, looked_at: bool) -> Row:
    """By the call where somebody has looked who holds its other end, else by the kernel's function where that is known."""
    by_call = next((row for row in ROWS if call in row.calls), None)
    if looked_at and by_call is not None:
        return by_call
    for row in ROWS if wchan else ():
        if re.search(row.kernel, wchan):
            return row
    return by_call or UNSEEN


_CALLS_NOBODY = re.compile(
    r"^lib(cuda(rt|debugger)?|nccl(-net|-tuner)?|nvidia-[a-z]+|nvrtc(-builtins)?|nv[jJ]it[lL]ink|nv[tT]oolsExt|nvshmem_[a-z]+"
    r"|nvperf_[a-z]+|nvml|cu(blas|blasLt|dnn|dnn_[a-z_]+|fft|fftw|rand|solver|solverMg|sparse|sparseLt|pti)"
    r"|torch(_cpu|_cuda|_python|_global_deps)?|c10(_cuda)?|gloo(_cuda)?|gomp(-[0-9a-f]+)?|iomp5|omp5?|(scipy_)?openblas[\w-]*"
    r"|mkl_[a-z0-9_]+|tbb(malloc)?|open-pal|open-rte|pmix)(-[0-9a-f]{8})?(\.|$)|^mca_|^(lib)?python[\d.t]*(so|$)"
)
"""Libraries whose own threads keep devices and connections alive, or compute, and call no function of a program; and
the interpreter, whose threads are seen to run Python when they do."""


_INTERPRETER = re.compile(r"(lib)?python[\d.t]*(so|$)")

_OF_NCCL = ("libnccl", "libtorch_cuda")
"""Files with NCCL's code: its own, or torch's where that was built with it."""


def may_call_back(thread: ThreadState) -> bool:
    """Whether a thread that wakes by itself is of a library that may hand something on to the program's Python."""
    return bool(thread.library) and _CALLS_NOBODY.search(thread.library) is None


def listens_for_peers(thread: ThreadState) -> bool:
    """Whether a thread of NCCL's waits for a connection: only the job's other ranks connect to a communicator's root."""
    return thread.call in LISTENS and thread.library.startswith(_OF_NCCL)


def asks_again(stack: ThreadStack, *, woke: bool) -> bool:
    """Whether a thread, by its innermost frames, asks processes of its own again and again whether they are done.

    ``woke`` says that it was seen to wake and to wait anew.
    """
    rows = (*_ASKS_AGAIN, *_MAY_ASK_ONCE) if woke else _ASKS_AGAIN
    for frame in python_frames(stack):
        for file, functions in rows:
            if f"/{file}" in frame.file and (bare(frame) in functions if functions else not is_own(frame)):
                return True
        if not is_stdlib(frame) and _OF_AN_AGENT not in frame.file:
            return False
    return False


def asks_anew(loop: LoopSample) -> bool:
    """Whether it is a ``while`` of one of these functions, which asks anew when the time limit is over."""
    name = loop.function.rpartition(".")[2]
    is_one = any(f"/{file}" in loop.file and name in functions for file, functions in _MAY_ASK_ONCE)
    return is_one and loop.header.startswith("while ")


def in_python_lock(stack: ThreadStack) -> bool:
    """Whether a thread waits in a lock of Python's: only a thread that runs Python can give it back."""
    if mentions(native_leaf(stack), *PYTHON_LOCK):
        return True
    innermost = next(iter(python_frames(stack)), None)
    return innermost is not None and innermost.file.endswith(LOCK_FILES)


def called_by_python(stack: ThreadStack, state: ThreadState) -> bool:
    """Whether a thread waits in a call that Python itself made, with no library's code in between.

    In the middle of a write nobody may be stopped for native frames; then the kernel tells whose code called.
    """
    leaf = native_leaf(stack)
    return all(map(is_runtime, leaf)) if leaf else bool(_INTERPRETER.match(state.library))


def waits_for_a_thread(stack: ThreadStack) -> bool:
    """Whether a thread waits for the end of another; so does ``asyncio.run`` at its end, in an event loop."""
    for frame in python_frames(stack):
        if _is_of_threading(frame, THREAD_ENDS) or (frame.file.endswith(_RUNNERS) and bare(frame) == "close"):
            return True
    return False


def awaits_the_end(stack: ThreadStack | None) -> bool:
    """Whether a thread waits for processes to end, however often it asks: in multiprocessing's ``join``, or torch's."""
    for frame in python_frames(stack) if stack is not None else ():
        if bare(frame) == "join" and frame.file.endswith(("multiprocessing/process.py", "multiprocessing/spawn.py")):
            return True
    return False


def joined_threads(
    threads: Iterable[ThreadStack], values: Mapping[tuple[int, int], Mapping[str, str]]
) -> tuple[tuple[int, int], ...]:
    """The threads that wait in ``Thread.join`` without a limit, each with the one that it waits for.

    So does ``asyncio.run`` at its end, in an event loop, for the thread that ends its default executor.
    ``values`` are the locals of each frame, by thread and depth from the innermost: a thread is one object, and lies in
    one place, to whoever joins it and in the frame that started it.
    """
    started: dict[str, int] = {}
    waiting: list[tuple[int, str]] = []
    joins: list[tuple[int, int]] = []
    ending = [thread.tid for thread in threads if any(map(_ends_an_executor, thread.frames))]
    for thread in threads:
        if any(frame.file.endswith(_RUNNERS) for frame in thread.frames):
            joins += [(thread.tid, tid) for tid in ending]
        for depth, frame in enumerate(thread.frames):
            own = values.get((thread.tid, depth), {})
            if _is_of_threading(frame, THREAD_STARTS):
                started[own.get("self", "")] = thread.tid
            elif _is_of_threading(frame, ("join",)) and own.get("timeout") == "None":
                waiting.append((thread.tid, own.get("self", "")))
    return (*joins, *((tid, started[whom]) for tid, whom in waiting if whom in started))


def _ends_an_executor(frame: Frame) -> bool:
    return frame.file.endswith("/asyncio/base_events.py") and bare(frame) == "_do_shutdown"


def _is_of_threading(frame: Frame, functions: tuple[str, ...]) -> bool:
    return frame.file.endswith("/threading.py") and bare(frame) in functions


def lock_cause(stack: ThreadStack | None, *, native: bool) -> str:
    """What a wait for a lock of the process is called, by the stack of the thread that waits."""
    if stack is None:
        return "unseen-wait"
    if in_python_lock(stack):
        return "deadlock"
    if mentions(native_leaf(stack), *NATIVE_LOCK):
        return "native-lock"
    # A lock taken by the program's own function looks, without native frames, like a wait in C.
    return "native-wait" if native else "unseen-wait"


def gil_holder(samples: Iterable[StackSample]) -> int | None:
    """The thread that holds the interpreter's lock in every sample that can tell; None when none does in all."""
    holders: set[int] = set()
    for sample in samples:
        if any(thread.owns_gil is not None for thread in sample.threads):
            owners = [thread.tid for thread in sample.threads if thread.owns_gil]
            holders.add(owners[0] if owners else 0)
    return holders.pop() if len(holders) == 1 and holders != {0} else None
