"""Tells how far a program that trains with torch is, without a change to it: one line per mark, each one write.

It waits until the program itself imports torch, then hangs itself on optimizer steps (torch's own global hook), on
``torch.autograd.backward``, on DataLoader iteration and on ``init_process_group``. In a program without torch it only
stays ready to show stacks when a signal asks for them. The lines go to ``heartbeat_rank{r}.jsonl`` in the trial's
folder, in the form that our own worker writes.

A rank is known by RANK (torchrun), SLURM_PROCID, OMPI_COMM_WORLD_RANK or PMI_RANK, and in any case once the process
has joined a process group. Processes that multiprocessing started, and children of a process that has spoken, are
helpers and keep silent until they join a group.

Marks are thinned out once a program has proved fast: after a few steps of less than QUICK_S, and after FULL_STEPS in
any case, a step is marked in full only when the one before it took a second or more. Otherwise one line a second says
which step is running, and ``place_rank{r}`` where in it: 56 bytes of shared memory that cost no system call and that
can be read whatever becomes of the process. Standard library only.
"""

import os
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # nothing of this is imported when a program starts: types that need it stand in quotes
    import signal as _signal
    from collections.abc import Callable, Mapping, Sequence
    from mmap import mmap
    from types import FrameType, ModuleType, TracebackType
    from typing import Any, TextIO

    Row = tuple[str, str, int]
else:
    import _signal  # below ``signal``, which takes 6 ms to import

FULL_STEPS = 1000
QUICK_STEPS = 10
QUICK_S = 0.01
"""A step marked in full costs up to 0.1 ms: more than a hundredth of steps shorter than this."""
THIN_S = 1.0

PLACE = struct.Struct("<QdQdQQQ")
"""Number of the mark, its time, steps done, when the last of them was, PID, which of PLACES, the number again: a reader
that meets a half-written one sees two numbers. ``harness.observe.heartbeat`` reads it so."""
PLACES = (("step", "begin"), ("data", "begin"), ("data", "end"), ("backward", "begin"), ("backward", "end"))
CODES = {place: code for code, place in enumerate(PLACES)}
put, monotonic = PLACE.pack_into, time.monotonic
kind_of: "Callable[[object], type[Any]]" = type
SPOKEN = "NSA_HARNESS_SPOKEN"
"""Set in the environment once this process has spoken, so that its children know that they are helpers."""

ABOVE = "NSA_HARNESS_PYTHON"
"""The PID of the first Python process above, or of this one, in the environment."""

OUTPUT = "NSA_HARNESS_OUTPUT"
"""Which pipe the output of the trial is, ``device:inode``, in the environment: its supervisor fills it in."""

CHECKED_S = 0.1
"""Seconds after which it is looked again whether a descriptor is still ours: a look takes 6 us."""

RECORDS_S = 30.0
"""How long an end may wait for torch's flight recorder; beside a program that has ended it takes a few seconds."""

MOST_FILES = 1024
"""The kernel's table of a process's files grows to the highest number in it."""

ALIKE = 3
"""Rows that Python shows at most of one line which calls itself."""

MOST_CHILDREN = 8
"""Children that did not end well, of which the last are told."""

MOST_POSITIONS, MOST_ITEMS = 20, 1_000
"""Rows that are told, and items of a list that is searched: the program waits meanwhile."""

GENTLY, AT_ONCE = 60, 61
"""The signals that ask for stacks. Real-time ones: programs and launchers give SIGUSR1 and SIGUSR2 a meaning of their
own, and look whether somebody handles them. ``harness.observe.stacks.faulthandler`` sends them."""

OF_A_HUNG_TEST = 45
"""The signal by which pytest's hang guard asks a process to fail the test that runs."""

SHOWS: "dict[str, Callable[[int, FrameType | None], None]]" = {}
"""Who answers GENTLY in this process (``by``), so that it can be told from a handler of the program's."""

LAUNCHER = "torch.distributed.elastic.agent.server.api"
"""Imported by torchrun, whose own end is no rank's."""

RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
WORLDS = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Variables by which launchers tell a process its rank, and how many there are. ``harness.observe.job`` reads them."""


class Speaker:
    """Writes marks for this process; ``say`` and ``step`` are on the program's way and must be quick."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.pid = os.getpid()
        self.rank: int | None = None
        self.fd = -1
        self.file: tuple[int, int] | None = None
        self.checked_s = 0.0
        self.seq = 0
        self.steps = self.told = 0
        self.phase: str | None = None
        self.raised = False
        self.silent = SPOKEN in os.environ
        self.is_below = os.environ.setdefault(ABOVE, str(self.pid)) != str(self.pid)
        self.thin = False
        self.memory: mmap | None = None
        self.watchable: int | None = None
        self.began_s = self.wrote_s = 0.0
        self.stepped: set[int] = set()
        self.limits_s: set[float] = set()
        self.handled: set[int] | None = None
        self.own_handled: set[int] = set()
        self.ended_children: list[tuple[int, int]] = []
        self.reason: dict[str, Any] | None = None

    def say(self, phase: str, edge: str, detail: "str | None" = None, step: bool = True) -> None:
        """Write where the program is."""
        if self.silent:
            return
        if self.thin and step:
            self.place(phase, edge)
            return
        if self.fd < 0 and not self.open():
            return
        self.phase = phase
        number = self.steps if step else "null"
        detail = f'"{detail}"' if detail else "null"
        self.write(f'{self.head()},"phase":"{phase}","edge":"{edge}","step":{number},"detail":{detail}}}\n')

    def step(self, optimizer: object, *_: object) -> None:
        """Write that a step is complete: with several optimizers, when one of them steps for the second time."""
        if self.silent:
            return
        if self.stepped and id(optimizer) not in self.stepped:
            self.stepped.add(id(optimizer))
            return
        self.stepped = {id(optimizer)}
        if self.fd < 0 and not self.open():
            return
        now_s = time.monotonic()
        step, self.steps = self.steps, self.steps + 1
        last_s, self.began_s = now_s - self.began_s, now_s
        if self.thin and last_s < THIN_S and now_s - self.wrote_s < THIN_S:
            self.place("step", "begin")
            return
        quick = last_s < QUICK_S and self.steps > QUICK_STEPS
        self.thin = quick or (self.steps > FULL_STEPS and last_s < THIN_S)
        self.finished(step, now_s)

    def finished(self, step: int, now_s: float) -> None:
        """Write that ``step`` is complete, and from here on no more than that if marks are thinned out."""
        self.wrote_s, self.told = now_s, self.steps
        line = f'{self.head()},"event":"step","step":{step},"done":{self.steps},"facts":{{}}}}\n'
        if self.thin:
            self.phase = "step"
            self.seq -= 1  # a step has one number however it is told: ranks that came equally far are at the same
            line += (
                f'{self.head()},"phase":"step","edge":"begin","step":{self.steps},"detail":"marks are thinned out"}}\n'
            )
        self.write(line)

    def place(self, phase: str, edge: str) -> None:
        """Put where the program is into shared memory."""
        self.seq += 1
        if self.memory is None:
            return
        code = CODES[phase, edge]
        put(self.memory, 0, self.seq, monotonic(), self.steps, self.began_s, self.pid, code, self.seq)

    def head(self) -> str:
        """How every line begins."""
        self.seq += 1
        return f'{{"seq":{self.seq},"t":{time.monotonic():.6f},"rank":{self.rank},"pid":{self.pid}'

    def write(self, line: str) -> None:
        """One write; a full disk must not end the program that is being watched."""
        data, now_s = line.encode(), time.monotonic()
        try:
            if now_s > self.checked_s + CHECKED_S:
                self.checked_s = now_s
                if not self.has_its_file():
                    self.open_file()
            try:
                os.write(self.fd, data)
            except OSError:
                if self.has_its_file():
                    raise
                self.open_file()
                os.write(self.fd, data)
        except OSError as error:
            self.lose(error)

    def open_file(self) -> None:
        """Open the file of this rank's marks, by a number that the program's own files do not get after ours."""
        path = os.path.join(self.folder, f"heartbeat_rank{self.rank}.jsonl")
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.fd = high(fd)
        self.file = identity(self.fd)

    def has_its_file(self) -> bool:
        """Whether the descriptor is still that file's: a daemon closes all that it has, and opens its own instead."""
        return self.fd >= 0 and identity(self.fd) == self.file

    def close(self) -> None:
        """Give the descriptor back, if it is still ours."""
        if self.has_its_file():
            os.close(self.fd)
        self.fd = -1

    def lose(self, error: OSError) -> None:
        """Say once that nobody sees the progress any more, in the words that our own worker uses."""
        self.silent = True
        sys.stderr.write(f"nsa-harness: heartbeats cannot be written: {error.strerror}; training goes on unseen\n")

    def open(self) -> bool:
        """Open this rank's file; False when this process is a helper or nothing can be written."""
        if self.rank is None:
            if is_helper():
                self.silent = True
                return False
            self.rank = rank_by_environment()
        try:
            self.open_file()
        except OSError as error:
            self.lose(error)
            return False
        os.environ[SPOKEN] = "1"
        self.memory = shared_memory(os.path.join(self.folder, f"place_rank{self.rank}"))
        self.introduce()
        return True

    def introduce(self) -> None:
        """Say which process has which rank, be watchable, and be told of the end."""
        import atexit
        import threading
        from contextlib import suppress

        # The process that had this rank failed, and its launcher began it anew.
        with suppress(OSError):
            os.remove(self.result_path())
        self.tell_of_rank("started", f'"started":{start_ticks()},"world":{number_in(os.environ, WORLDS) or 0}')
        self.be_watchable()
        self.tell_of_handlers()
        # The first thing that ends: before threads are joined, where a program can hang for good.
        with suppress(RuntimeError):  # it is already at its end, and only its exception is left to tell
            getattr(threading, "_register_atexit", atexit.register)(self.leaving)

    def tell_of_rank(self, event: str, facts: str) -> None:
        """Write a line of the file that says which process has which rank."""
        row = f'{{"event":"{event}","rank":{self.rank},"pid":{self.pid},{facts},"t":{time.monotonic():.6f}}}\n'
        path = os.path.join(self.folder, "ranks.jsonl")
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.write(fd, row.encode())
            os.close(fd)
        except OSError as error:
            self.lose(error)

    def gives_up_after(self, limit_s: "float | None") -> None:
        """Write once that this rank waits in some group for no longer than that: its wait may end with an error."""
        if limit_s is None or limit_s in self.limits_s or self.silent or (self.fd < 0 and not self.open()):
            return
        self.limits_s.add(limit_s)
        self.tell_of_rank("gives_up", f'"seconds":{limit_s}')

    def tell_of_handlers(self) -> None:
        """Write which signals Python has handlers for, now and whenever that changes.

        The kernel tells only that there is one: a compiler that a library brings along (LLVM, in triton) has handlers
        that remove its files, by which no program that waits is let on.
        """
        self.handled = set()
        for number in range(1, _signal.NSIG):
            self.takes(number)
        self.note("handlers", sorted(self.handled))

    def takes(self, number: int) -> bool:
        """Whether it is new that Python has a handler for this signal, or that it has none."""
        handled = self.handled if self.handled is not None else set()
        before = len(handled)
        is_ours = number in (GENTLY, AT_ONCE, OF_A_HUNG_TEST)
        is_there = not is_ours and callable(_signal.getsignal(number))
        (handled.add if is_there else handled.discard)(number)
        return len(handled) != before

    def takes_by_itself(self, number: int, handler: object) -> None:
        """Write for which signals the program's own code has handlers, if that changes: one may end what it waits for.

        A library's own only ends what it began, or tells it that the program is to end. To take what Ctrl-C does for
        another signal is the program's own choice.
        """
        before = len(self.own_handled)
        if handler is _signal.default_int_handler:
            is_own = number != _signal.SIGINT
        else:
            is_own = asked(is_of_the_program, handler, otherwise=True)
        (self.own_handled.add if is_own else self.own_handled.discard)(number)
        if len(self.own_handled) != before:
            self.note("own_handlers", sorted(self.own_handled))

    def child_ended(self, pid: int, code: int) -> None:
        """Put into ``ended_children_{pid}`` which of its children did not end well: a pool forgets its workers."""
        self.ended_children = [*self.ended_children[1 - MOST_CHILDREN :], (pid, code)]
        self.note("ended_children", [number for child in self.ended_children for number in child])

    def tell_of_an_alarm(self) -> None:
        """Put into ``armed_{pid}`` that an alarm was set before this program began: one outlives an ``exec``.

        The kernel tells nobody else, and whoever set it is gone.
        """
        if _signal.getitimer(_signal.ITIMER_REAL)[0]:
            self.note("armed", ())

    def note(self, name: str, numbers: "Sequence[int]") -> None:
        """Put numbers into ``{name}_{pid}``, behind the time at which this process began."""
        path = os.path.join(self.folder, f"{name}_{self.pid}")
        try:
            fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.write(fd, f"{' '.join(map(str, [start_ticks(), *numbers]))}\n".encode())
            os.close(fd)
        except OSError as error:
            self.lose(error)

    def is_one_of(self, world: int) -> None:
        """Write how many ranks there are, of which some may be on machines, or in jobs, that nobody sees from here."""
        if not self.silent:
            self.tell_of_rank("world", f'"world":{world}')

    def result_path(self) -> str:
        """Where an exception of this rank is written."""
        return os.path.join(self.folder, f"result_rank{self.rank}.json")

    def be_watchable(self) -> None:
        """Let this process be looked at, once: as soon as it has an optimizer, long before its first mark perhaps."""
        rank = self.rank if self.rank is not None else rank_by_environment()
        if self.watchable != rank and not (self.rank is None and is_helper()):
            self.watchable = rank
            be_watchable(self.folder, rank)

    def leaving(self) -> None:
        """Write that the program has come to its end."""
        self.thin = False
        if self.steps > self.told and not self.silent:
            self.finished(self.steps - 1, time.monotonic())
        keep_reason(self)
        if not self.raised:  # an exception that ends the program happened where it was, not at its end
            self.say("exit", "begin", step=False)
        let_the_recorder_end(f"{os.environ.get('TORCH_FR_DUMP_TEMP_FILE', '')}{self.rank}")

    def joined(self, rank: int) -> None:
        """This process is ``rank`` of a group: it speaks from now on, for that rank."""
        if rank < 0 or rank == self.rank:
            return
        self.close()
        self.rank, self.silent, self.limits_s = rank, False, set()

    def forked(self) -> None:
        """This is a child now: a helper, unless it joins a group."""
        self.close()
        self.rank = None
        self.pid, self.silent = os.getpid(), True
        self.seq = self.steps = self.told = 0
        self.stepped, self.limits_s, self.handled, self.reason, self.ended_children = set(), set(), None, None, []
        if self.own_handled:
            self.note("own_handlers", sorted(self.own_handled))


def let_the_recorder_end(record: str) -> None:
    """Wait until torch's flight recorder has written what it was asked for, at most ``RECORDS_S``.

    Its thread runs Python for that, and may import packages for seconds: below an interpreter that ends it crashes.
    """
    until = time.monotonic() + RECORDS_S
    while time.monotonic() < until and changed_at(f"{record}.asked") > changed_at(record):
        time.sleep(0.05)


def changed_at(path: str) -> float:
    """When a file was last written, by the clock of its file system; 0 for one that is not there."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def high(fd: int) -> int:
    """The same file by one of the highest numbers, if a limit allows that: a daemon closes all, and begins with 3."""
    import fcntl
    import resource

    most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], MOST_FILES)
    try:
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, most - 24)
    except (OSError, ValueError):  # a low limit, or all are in use
        return fd
    os.close(fd)
    return moved


def identity(fd: int) -> "tuple[int, int] | None":
    """Which file a descriptor is of; None where it is closed."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def show_lines_at_once() -> None:
    """Have a line of output written when it is printed, as on a terminal, where it goes to the trial's own pipe.

    Any other pipe holds lines back as it does without us: who waits for one that was not flushed hangs then, too.
    PYTHONUNBUFFERED, set to whatever, is the user's own word.
    """
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    own = ":".join(map(str, identity(1) or ()))
    if reconfigure and own == os.environ.get(OUTPUT) and "PYTHONUNBUFFERED" not in os.environ:
        reconfigure(line_buffering=True)


def shared_memory(path: str) -> "mmap | None":
    """Memory that is the file at ``path``; None where that cannot be had (a full disk, a file system without it)."""
    import mmap

    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, bytes(PLACE.size))  # written, not only made longer: no block may be missing later
            return mmap.mmap(fd, PLACE.size)
        finally:
            os.close(fd)
    except (OSError, ValueError):
        return None


def number_in(environment: "Mapping[str, str]", names: "Sequence[str]") -> "int | None":
    """What a launcher set in the first of these variables that has a number: a rank, how many there are; or None."""
    for name in names:
        text = environment.get(name, "")
        if text.isdecimal():
            return int(text)
    return None


def rank_by_environment() -> int:
    """The rank that a launcher gave, 0 without one."""
    return number_in(os.environ, RANKS) or 0


def start_ticks() -> "int | str":
    """When this process began, in clock ticks since boot: with its PID it is known by that, in any namespace."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return "null"


def is_helper() -> bool:
    """Whether multiprocessing started this process."""
    process = sys.modules.get("multiprocessing.process")
    parent = getattr(process, "parent_process", None)
    return parent is not None and parent() is not None


def is_launcher(folder: str) -> bool:
    """Whether this process, which has not spoken, only started the one that did."""
    spoken = os.path.exists(os.path.join(folder, f"heartbeat_rank{rank_by_environment()}.jsonl"))
    return spoken or LAUNCHER in sys.modules


HANDS_ON = (os.path.join("asyncio", "unix_events.py"), os.path.join("trio", "_signals.py"))
"""Files whose handlers tell an event loop, which calls what the program gave it."""


END_RANKS = ("accelerate", "deepspeed", "horovod", "ray", "torch")
"""Installed packages that start processes of the program's, and handle signals to end these."""


def is_of_the_program(handler: object) -> bool:
    """Whether a signal's handler is code that is no library's and not ours; asyncio's hands on to the program's.

    A package's is the program's where the package is the program.
    """
    if not callable(handler):
        return False
    function: Any = handler
    while kind_of(function).__module__ == "functools" and hasattr(function, "func"):  # asyncio's, with its task
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None) or getattr(kind_of(function).__call__, "__code__", None)
    if code is None:  # a function of C
        return False
    file: str = code.co_filename
    if file.endswith(HANDS_ON) or is_own_file(file):
        return True
    package = file.rpartition(PACKAGES)[2].split(os.sep)[0]
    return PACKAGES in file and package not in END_RANKS and is_all_installed()


PACKAGES = "-packages" + os.sep
"""What the folders of installed packages end with, ``site-packages`` and ``dist-packages``."""


def is_own_file(file: str) -> bool:
    """Whether code of this file is no library's and not ours."""
    library = os.path.dirname(os.__file__) + os.sep
    return not file.startswith((library, "<frozen", os.path.dirname(__file__))) and PACKAGES not in file


def is_all_installed() -> bool:
    """Whether the program's own code only starts what is installed: its main module defines nothing, and is alone.

    So are a script in ``bin``, ``python -m package``, and ``-c 'from package import main; main()'``.
    """
    frame: Any = sys._getframe()  # no other way to see who calls
    while frame is not None:
        code = frame.f_code
        defines = code.co_name != "<module>" or any(type(value) is type(code) for value in code.co_consts)
        if defines and is_own_file(code.co_filename):
            return False
        frame = frame.f_back
    main = sys.modules.get("__main__")
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values()) if module is not main]
    return not any(type(file) is str and is_own_file(file) for file in files)


def watch_handlers(speaker: Speaker) -> None:
    """Write down each later change of Python's handlers, below ``signal``, which programs call."""
    module: Any = _signal
    original = module.signal

    def signal(number: int, handler: "Any", /) -> "Any":
        before = original(number, handler)
        speaker.takes_by_itself(int(number), handler)
        if speaker.handled is not None and speaker.takes(int(number)):
            speaker.note("handlers", sorted(speaker.handled))
        return before

    signal.__doc__, signal.__module__ = original.__doc__, original.__module__
    module.signal = signal


def be_watchable(folder: str, rank: int) -> None:
    """Stacks on signals if the program leaves them alone; and where Yama is on, let stack dumpers look."""
    try:
        if _signal.getsignal(GENTLY) in (_signal.SIG_DFL, SHOWS.get("by")):
            show_stacks(open(os.path.join(folder, f"faulthandler_rank{rank}.txt"), "a", encoding="utf-8"))
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="utf-8") as setting:
            restricted = setting.read().strip() == "1"
    except (OSError, ValueError):  # no Yama in this kernel, or no handler in this thread: other ways remain
        return
    if restricted:
        import ctypes

        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)


def show_stacks(file: "TextIO") -> None:
    """On GENTLY by Python's own handler, between two of the main thread's instructions; on AT_ONCE at once, from C.

    From C it works whatever holds the interpreter lock, and can crash a process whose Python runs, because it reads
    frames while they change: up to one signal in a dozen (ADR 18). ``harness.observe.stacks.faulthandler`` chooses.

    While it ends, Python gives back every signal that it handled, and one that is on its way then would end the process
    with a signal's status, as a crash does. Both are ignored instead from the last line of the program on: Python
    leaves alone what is ignored, and faulthandler goes back to what was before it.
    """
    import atexit
    import faulthandler

    def show(number: int, frame: "FrameType | None") -> None:
        import json

        try:
            frames = own_frames(frame)
            answer = {"positions": positions(frames), "values": values(frames), "loop": event_loop(frames)}
            file.write(f"inside {json.dumps(answer)}\n")
            file.flush()
        except KeyboardInterrupt:  # that is for the program
            raise
        except BaseException:  # noqa: BLE001, S110 - whatever a program's own objects do when they are looked at
            pass
        faulthandler.dump_traceback(file, all_threads=True)

    SHOWS["by"] = show
    _signal.signal(GENTLY, show)
    # A system call of the program that waits goes on waiting.
    _signal.siginterrupt(GENTLY, False)  # noqa: FBT003 - it takes no names
    if _signal.getsignal(AT_ONCE) is _signal.SIG_DFL:  # once: faulthandler does not take a signal for a second time
        _signal.signal(AT_ONCE, _signal.SIG_IGN)
    faulthandler.register(AT_ONCE, file=file, all_threads=True)
    atexit.register(_signal.signal, GENTLY, _signal.SIG_IGN)


def own_frames(frame: "FrameType | None") -> "list[FrameType]":
    """The frames of this stack, innermost first, less our own wrappers."""
    frames: list[FrameType] = []
    while frame is not None:
        frames += [frame] if frame.f_code.co_filename != __file__ else []
        frame = frame.f_back
    return frames


def event_loop(frames: "list[FrameType]") -> "tuple[list[Row], list[tuple[str, list[Row]]], int]":
    """Where the coroutines stand of the event loop that the main thread runs; they have no frame on its stack.

    First what the task awaits for which it runs, innermost first: on to the task that this one awaits, and of several
    that are awaited together to the first that does more than sleep. Then the name and the coroutines of every other
    task that is not done, and last how many timers the loop has.
    """
    of_asyncio = [frame for frame in frames if frame.f_code.co_filename.endswith("/asyncio/base_events.py")]
    runs = [frame for frame in of_asyncio if frame.f_code.co_name == "run_forever"]
    starts = [frame for frame in of_asyncio if frame.f_code.co_name == "run_until_complete"]
    if not runs:
        return [], [], 0
    loop: Any = runs[0].f_locals["self"]
    rows: list[Row] = []
    chain: list[Any] = []
    future: Any = starts[0].f_locals.get("future") if starts else None
    while future is not None and len(chain) < MOST_POSITIONS:
        chain.append(future)
        inside = coroutines(future)
        rows = places(inside) + rows
        awaited = sorted(awaited_together(future, inside), key=sleepers_last)
        future = awaited[0] if awaited else getattr(future, "_fut_waiter", None)
    tasks = [task for task in sys.modules["asyncio"].all_tasks(loop) if task not in chain]
    others = [(task.get_name(), places(coroutines(task))) for task in tasks[:MOST_ITEMS]]
    return rows[:MOST_POSITIONS], others, sum(not timer.cancelled() for timer in loop._scheduled)


def awaited_together(future: "Any", frames: "list[FrameType]") -> "list[Any]":
    """The tasks that are not done of those that a gathering, ``asyncio.wait`` or a group of tasks awaits."""
    awaited = set(getattr(future, "_children", ()))
    values = frames[-1].f_locals if frames else {}
    file = frames[-1].f_code.co_filename if frames else ""
    if file.endswith("/asyncio/tasks.py"):
        awaited.update(values.get("fs", ()))
    elif file.endswith("/asyncio/taskgroups.py"):
        awaited.update(getattr(values.get("self"), "_tasks", ()))
    return [one for one in awaited if not one.done()]


def sleepers_last(task: "Any") -> "tuple[bool, str]":
    """By which tasks are sorted: those in ``asyncio.sleep`` come last, else their names decide."""
    rows = places(coroutines(task))
    return bool(rows) and rows[0][0] == "sleep", task.get_name() if hasattr(task, "get_name") else ""


def coroutines(task: "Any") -> "list[FrameType]":
    """The frames of a task's coroutine and of what it awaits in turn, outermost first."""
    frames: list[FrameType] = []
    one: Any = task.get_coro() if hasattr(task, "get_coro") else None
    while one is not None and len(frames) < MOST_POSITIONS:
        frame = getattr(one, "cr_frame", None) or getattr(one, "gi_frame", None) or getattr(one, "ag_frame", None)
        frames += [frame] if frame is not None else []
        one = getattr(one, "cr_await", None) or getattr(one, "gi_yieldfrom", None) or getattr(one, "ag_await", None)
    return frames


def places(frames: "list[FrameType]") -> "list[Row]":
    """Function, file and line of each, the last first."""
    return [(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno) for frame in reversed(frames)]


class Mark:
    """What a frame carries in the place of its trace function, so that it is known again: it traces nothing."""

    made = 0

    def __init__(self) -> None:
        Mark.made += 1
        self.number = Mark.made

    def __call__(self, frame: "FrameType", event: str, arg: "Any") -> None:
        """Nothing, should a debugger begin meanwhile: without a mark it would not be told of these lines either."""


def call_of(frame: "FrameType") -> int:
    """What stands for this one call of its function, and is the same as long as it lasts; 0 where a debugger is."""
    if frame.f_trace is None and sys.gettrace() is None:
        frame.f_trace = Mark()
    return frame.f_trace.number if type(frame.f_trace) is Mark else 0


def values(frames: "list[FrameType]") -> "list[tuple[int, dict[str, str], dict[str, str], int]]":
    """What the innermost functions compute with: for each its number from the outermost, its own variables, and others.

    Last comes what stands for this call of it.

    Globals are others, and what it shares with a function inside or around it: another thread may set either. Texts are
    as py-spy spells plain values; of strings and containers they only say whether they are still the same.
    """
    rows: list[tuple[int, dict[str, str], dict[str, str], int]] = []
    for depth, frame in enumerate(frames[:MOST_POSITIONS]):
        code = frame.f_code
        shared = {name: frame.f_globals[name] for name in code.co_names if name in frame.f_globals}
        own = {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)
        for name in code.co_cellvars + code.co_freevars:
            if name in own:
                shared[name] = own.pop(name)
        for name in own:
            shared.pop(name, None)
        rows.append((len(frames) - depth, spelt(own), spelt(shared), call_of(frame)))
    return rows


def spelt(namespace: "dict[str, Any]") -> "dict[str, str]":
    """The texts of the plain ones among these values; modules, functions and classes are left out."""
    texts: dict[str, str] = {}
    for name, value in namespace.items():
        if len(texts) == MOST_ITEMS:
            break
        if not callable(value) and type(value) is not type(sys):
            texts[name] = text_of(value)
    return texts


def text_of(value: "Any") -> str:
    """A number as it is; a string, or a container of such and its length, by a fingerprint; else its type alone."""
    kind = kind_of(value)
    if value is None or kind in (bool, float) or (kind is int and value.bit_length() < 60):
        return repr(value)
    if kind is str:
        return f'"{fingerprint(value)}"'
    if kind in (list, tuple, dict) and len(value) <= MOST_ITEMS:
        items = [item for pair in value.items() for item in pair] if kind is dict else value
        if all(item is None or type(item) in (bool, int, float, str) for item in items):
            return f"{kind()}"[0] + f"#{len(value)} {fingerprint(repr(items))}"
    return f"<{kind.__name__}>"


def fingerprint(text: str) -> str:
    """What stands for a text that may be a secret."""
    import hashlib

    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def positions(frames: "list[FrameType]") -> "list[tuple[str, str, int, str, int, int, int]]":
    """Which item of which list the functions on this stack are at, innermost first: where their loops are.

    A row is function, file, line, the local's name, its place among the items of its type from 0, how many of them
    there are, how many frames there are up to this one from the outermost. Items are compared by identity, so that a
    batch or a layer is found again without asking it anything.
    """
    rows: list[tuple[str, str, int, str, int, int, int]] = []
    for depth, frame in enumerate(frames):
        place = position(frame)
        if place is not None and len(rows) < MOST_POSITIONS:
            code = frame.f_code
            rows.append((code.co_name, code.co_filename, frame.f_lineno, *place, len(frames) - depth))
    return rows


def position(frame: "FrameType") -> "tuple[str, int, int] | None":
    """A local's name, its place among those of its type in a list that the function has at hand, and their number."""
    values = frame.f_locals
    own = attributes(values.get("self"))
    modules: Any = own.get("_modules")
    children = modules.values() if issubclass(kind_of(modules), dict) else ()
    lists = list(map(items_of, (*values.values(), *own.values(), *children)))
    for name, value in values.items():
        if name == "self" or value is None or isinstance(value, (int, float, str, bytes)):
            continue
        for items in lists:
            place, alike = place_among(items, value)
            if place is not None and alike > 1:
                return name, place, alike
    return None


def place_among(items: "Sequence[Any]", value: "Any") -> "tuple[int | None, int]":
    """The place of a value among the items of its type, None where it is not there, and how many those are."""
    place, alike = None, 0
    for item in items:
        if item is value and place is None:
            place = alike
        if type(item) is type(value):
            alike += 1
    return place, alike


def attributes(value: object) -> "Mapping[str, Any]":
    """What an object holds, without a word of its own about it; nothing of one that has slots."""
    return asked(object.__getattribute__, value, "__dict__", otherwise={})


def items_of(value: "Any") -> "Sequence[Any]":
    """The items of a list, a tuple, or a torch ModuleList or Sequential; nothing of anything else, or of a huge one."""
    if not issubclass(kind_of(value), (list, tuple)):
        modules: Any = attributes(value).get("_modules")
        value = (
            tuple(modules.values()) if issubclass(kind_of(modules), dict) and hasattr(kind_of(value), "__len__") else ()
        )
    return value if 1 < len(value) <= MOST_ITEMS else ()


def watch_optimizers(speaker: Speaker, module: "Any") -> None:
    """Torch calls a global hook after every optimizer's step (torch 2.0 and later); who makes one is to train."""
    import functools

    original = module.Optimizer.__init__

    @functools.wraps(original)
    def __init__(*args: object, **kwargs: object) -> None:
        speaker.be_watchable()
        original(*args, **kwargs)

    module.Optimizer.__init__ = __init__
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is not None:
        register(speaker.step)


def marked(speaker: Speaker, phase: str, original: "Callable[..., Any]") -> "Callable[..., Any]":
    """``original``, which says where it begins and ends."""
    import functools

    @functools.wraps(original)
    def wrapper(*args: object, **kwargs: object) -> object:
        speaker.say(phase, "begin")
        try:
            return original(*args, **kwargs)
        finally:
            speaker.say(phase, "end")

    return wrapper


def watch_backward(speaker: Speaker, module: "Any") -> None:
    """Every ``loss.backward()`` comes through ``torch.autograd.backward``."""
    module.backward = marked(speaker, "backward", module.backward)


def watch_loaders(speaker: Speaker, module: "Any") -> None:
    """Every batch of a DataLoader comes out of ``__next__`` of its iterator; making that may start workers."""
    module._BaseDataLoaderIter.__next__ = marked(speaker, "data", module._BaseDataLoaderIter.__next__)
    module.DataLoader.__iter__ = marked(speaker, "data", module.DataLoader.__iter__)


def watch_children(speaker: Speaker, module: "Any") -> None:
    """Note each process of multiprocessing that an error ended, or a signal that this one has not sent it itself.

    When its end is seen its code is set, once: no frame of ours stands where somebody waits for an end.
    """
    process = module.Popen
    send: Any = process._send_signal

    def code(self: "Any") -> "int | None":
        return self.__dict__.get("returncode")

    def ended(self: "Any", code: "int | None") -> None:
        is_new = self.__dict__.get("returncode") is None
        self.__dict__["returncode"] = code
        if is_new and code and code != -self.__dict__.get("was_sent", 0):
            speaker.child_ended(self.pid, code)

    def _send_signal(self: "Any", number: int) -> None:
        self.__dict__["was_sent"] = number
        send(self, number)

    process.returncode = property(code, ended)
    process._send_signal = _send_signal


def rank_in(args: "Sequence[object]", kwargs: "Mapping[str, object]") -> int:
    """The rank that a call of ``init_process_group`` names, its fifth argument; -1 where it leaves that to others."""
    rank = kwargs.get("rank", args[4] if len(args) > 4 else -1)
    return rank if isinstance(rank, int) else -1


LIMITED = {"init_process_group": 2, "new_group": 1, "monitored_barrier": 1}
"""Calls that may give a group a time limit, and the place of that argument."""


def limit_in(name: str, args: "Sequence[object]", kwargs: "Mapping[str, object]") -> "float | None":
    """The time limit that a call of one of ``LIMITED`` gives, in seconds; None where it leaves that to torch."""
    place = LIMITED[name]
    limit: Any = kwargs.get("timeout", args[place] if len(args) > place else None)
    return asked(seconds_of, limit, otherwise=None)


def seconds_of(limit: "Any") -> float:
    """The seconds of a timedelta."""
    return float(limit.total_seconds())


def watch_limits(speaker: Speaker, module: "Any", name: str) -> None:
    """Write the time limits that calls of a function of torch.distributed give."""
    import functools

    original = getattr(module, name)

    @functools.wraps(original)
    def limited(*args: object, **kwargs: object) -> object:
        speaker.gives_up_after(limit_in(name, args, kwargs))
        return original(*args, **kwargs)

    setattr(module, name, limited)


def watch_groups(speaker: Speaker, module: "Any") -> None:
    """Joining a process group tells the rank; it is also where a peer that is missing is waited for."""
    import functools

    original = module.init_process_group
    for name in LIMITED.keys() - {"init_process_group"}:
        if hasattr(module, name):
            watch_limits(speaker, module, name)

    @functools.wraps(original)
    def init_process_group(*args: object, **kwargs: object) -> object:
        let_nobody_import_unasked()
        if not is_helper():
            speaker.joined(rank_in(args, kwargs))
            speaker.say("build", "begin", "init_process_group", step=False)
        result = original(*args, **kwargs)
        speaker.joined(module.get_rank())
        speaker.say("build", "end", "init_process_group", step=False)
        speaker.is_one_of(module.get_world_size())
        speaker.gives_up_after(limit_in("init_process_group", args, kwargs))
        return result

    module.init_process_group = init_process_group


def let_nobody_import_unasked() -> None:
    """Torch's flight recorder, asked for a record, looks for ``torch._inductor`` from a thread of its own.

    That imports it there, for seconds, beside imports of the program's own, which then fail half done ("partially
    initialized module"). What no Python code asks for is not there unless it was imported before.
    """
    torch = sys.modules["torch"]
    original = vars(torch).get("__getattr__")
    if original is None or original.__module__ == __name__:
        return

    def __getattr__(name: str) -> object:
        if name == "_inductor" and sys._getframe().f_back is None:
            raise AttributeError(name)
        return original(name)

    torch.__getattr__ = __getattr__  # type: ignore[method-assign]


HOOKS = {
    "torch.optim.optimizer": watch_optimizers,
    "torch.autograd": watch_backward,
    "torch.utils.data.dataloader": watch_loaders,
    "torch.distributed.distributed_c10d": watch_groups,
    "multiprocessing.popen_fork": watch_children,
}


class Waiting:
    """A finder that finds nothing itself: it sees which module is imported, and hooks those that it waits for."""

    def __init__(self, speaker: Speaker) -> None:
        self.speaker = speaker
        self.hooks = dict(HOOKS)

    def find_spec(self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None) -> "Any":
        """The spec that the other finders give, with our hook behind the module's own code."""
        hook = self.hooks.pop(name, None)
        if hook is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                self.after(spec.loader, hook)
                return spec
        return None

    def after(self, loader: "Any", hook: "Callable[[Speaker, Any], None]") -> None:
        """Have ``hook`` called when ``loader`` has run its module's code."""
        run = getattr(loader, "exec_module", None)
        if run is None:
            return

        def exec_module(module: "ModuleType") -> None:
            del loader.exec_module
            run(module)
            try:
                hook(self.speaker, module)
            except (AttributeError, TypeError) as error:  # a torch that is built otherwise must still run
                sys.stderr.write(f"nsa-harness: no progress from {module.__name__}: {error!r}\n")

        try:
            loader.exec_module = exec_module
        except Exception:  # noqa: BLE001 - a loader with slots, or one of the program's: this module stays unseen
            return


def tell_exceptions(speaker: Speaker) -> None:
    """Keep the exception that ends the program, beside what the program does with it."""
    import atexit

    before = sys.excepthook

    def excepthook(kind: "type[BaseException]", error: BaseException, trace: "TracebackType | None") -> None:
        # Of Ctrl-C nothing is kept: Python dies of the signal only where nothing is imported after it.
        if not issubclass(kind, KeyboardInterrupt) and not is_shown_by_the_program():
            keep_exception(speaker, error, trace)
        before(kind, error, trace)

    sys.excepthook = excepthook
    watch_exit(speaker)
    atexit.register(tell_of_the_last, speaker)


def watch_exit(speaker: Speaker) -> None:
    """Note what is being dealt with while the program asks to be ended with an error status, as hydra and mp.spawn do.

    It is written when the program comes to its end, and only as text: frames that were kept would keep what they have,
    and so the end itself. A refused command line (2) says why by itself; and what a thread asks ends that one alone.
    """
    import _thread

    original: Any = sys.exit
    main = _thread.get_ident()

    def exit(status: object = None, /) -> "Any":
        error = sys.exc_info()[1]
        if _thread.get_ident() == main:
            speaker.reason = None  # an earlier one was caught
            is_failure = issubclass(kind_of(status), (int, str)) and status not in (0, OF_USAGE)
            if error is not None and is_failure and issubclass(kind_of(error), Exception):
                speaker.reason = asked(told_of, speaker, error, error.__traceback__, otherwise=None)
            if speaker.reason is not None:
                speaker.reason["begun_by_python"] = True
        original(status)

    exit.__doc__ = original.__doc__
    sys.exit = exit


OF_USAGE = 2
"""The status with which argparse, optparse and click refuse a command line."""


def tell_of_the_last(speaker: Speaker) -> None:
    """Keep the exception that ended the program where a hook of its own was put in the place of ours (rich, typer).

    Python remembers it for debuggers. So do test runners and shells of one that they have shown, and go on: those were
    not raised through the program's main module.
    """
    error: Any = getattr(sys, "last_value", None)
    trace = getattr(sys, "last_traceback", None)
    if trace is None:
        keep_reason(speaker)
    if speaker.raised or trace is None or not issubclass(kind_of(error), Exception):
        return
    frame = trace.tb_frame
    outermost = frame.f_globals.get("__name__"), frame.f_code.co_name
    is_typed = frame.f_code.co_filename.startswith("<") and frame.f_code.co_filename not in ("<string>", "<stdin>")
    if is_typed or outermost not in (("__main__", "<module>"), ("runpy", "_run_module_as_main")):
        return
    keep_exception(speaker, error, trace)


def is_shown_by_the_program() -> bool:
    """Whether the program calls ``sys.excepthook`` itself, or C code in it does, and goes on.

    When an exception ends it, its own frames are gone: above the hook are at most other hooks, which call this one.
    """
    frame: Any = sys._getframe()  # no other way to see who calls
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name in ("<module>", "_run_module_as_main", "_bootstrap")


def keep_exception(speaker: Speaker, error: BaseException, trace: "TracebackType | None") -> None:
    """Write ``result_rank{r}.json``, as our own worker does; nothing that goes wrong here reaches the program."""
    if speaker.silent or speaker.raised:
        return
    try:
        if speaker.fd < 0 and (is_launcher(speaker.folder) or not speaker.open()):
            return
        speaker.raised = True
        write_whole(speaker.result_path(), told_of(speaker, error, trace))
    except BaseException:  # noqa: BLE001 - a full disk, or whatever an exception's own methods do: stderr still has it
        speaker.raised = True


def keep_reason(speaker: Speaker) -> None:
    """Write the exception with which the program was dealing when it asked to be ended, if it was."""
    if speaker.reason is None or speaker.silent or speaker.raised:
        return
    try:
        if speaker.fd >= 0 or (not is_launcher(speaker.folder) and speaker.open()):
            write_whole(speaker.result_path(), speaker.reason)
    except OSError:  # a full disk: stderr still has it
        return


def told_of(speaker: Speaker, error: BaseException, trace: "TracebackType | None") -> "dict[str, Any]":
    """What was raised and where; of a group, which says nothing but how many there are, the first in it."""
    first = first_of(error)
    text = asked(traceback_of, error, trace)
    if first is not error:
        trace = first.__traceback__
        text += "\nThe first of them:\n\n" + asked(traceback_of, first, trace)
    return {
        "status": "raised",
        "steps_done": speaker.steps,
        "phase": speaker.phase,
        "exception": asked(name_of, type(first), otherwise="Exception"),
        "message": asked(str, first, otherwise="<exception str() failed>"),
        "traceback": without_us(text),
        "begun_by_python": speaker.is_below,
        "program": program_number(),
        "frames": raised_at(first, trace),
        "quoted": asked(quoted_by, first, otherwise=None),
        "begun": beginning(),
        "ended_children": speaker.ended_children,
    }


def write_whole(path: str, result: "dict[str, Any]") -> None:
    """Write a file that nobody reads half written."""
    import json

    text = json.dumps(result)
    fresh = f"{path}.{os.getpid()}.tmp"
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(fresh, path)


def asked(ask: "Callable[..., Any]", *about: object, otherwise: "Any" = "") -> "Any":
    """What an object of the program's answers; ``otherwise`` where it raises, which may be anything."""
    try:
        return ask(*about)
    except BaseException:  # noqa: BLE001 - also what no other program would raise there
        return otherwise


def traceback_of(error: BaseException, trace: "TracebackType | None") -> str:
    """The text that Python prints of an exception."""
    import traceback

    return "".join(traceback.format_exception(type(error), error, trace))


def raised_at(error: BaseException, trace: "TracebackType | None") -> "list[dict[str, Any]]":
    """Where an exception was raised, innermost first; of one that repeats, three, as Python shows them."""
    rows: list[dict[str, Any]] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        row = {"function": code.co_name, "file": code.co_filename, "line": trace.tb_lineno or 0}
        if code.co_filename != __file__ and rows[-ALIKE:] != [row] * ALIKE:
            rows.append(row)
        trace = trace.tb_next
    return asked(syntax_error_at, error, otherwise=[]) + rows[::-1]


def syntax_error_at(error: "Any") -> "list[dict[str, Any]]":
    """The line of a file that is no Python."""
    if not issubclass(kind_of(error), SyntaxError) or not error.filename or error.filename.startswith("<"):
        return []
    return [{"function": "<module>", "file": str(error.filename), "line": int(error.lineno or 0)}]


def quoted_by(error: BaseException) -> "str | None":
    """The traceback of a pool's worker, which multiprocessing and concurrent.futures give as the cause."""
    cause = error.__cause__
    text = getattr(cause, "tb", None) if type(cause).__name__.endswith("RemoteTraceback") else None
    return text if type(text) is str else None


SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


def beginning() -> "dict[str, Any]":
    """By which command of which shell this program was begun, and whether anybody reads its standard error.

    Between the two may be programs that only begin another one (timeout, env).
    """
    facts: dict[str, Any] = {"words": without_values(program_words(command_line("self"))[1:])}
    try:
        facts["unheard"] = os.readlink("/proc/self/fd/2") == os.devnull
    except OSError:
        facts["unheard"] = False
    pid = os.getppid()
    for _ in range(3):
        if pid <= 1:  # it has lost its parent: the machine's first process is nobody's
            break
        words = command_line(pid)
        name = os.path.basename(words[0]) if words else ""
        try:
            if name.lstrip("-") in SHELLS:
                facts["shell"], facts["folder"] = without_values(words), os.readlink(f"/proc/{pid}/cwd")
            if name.lstrip("-") in SHELLS or name.startswith("python"):
                break
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
    return facts


def without_values(words: "list[str]") -> "list[str]":
    """The same with nothing behind ``NAME=``, where a password may stand."""
    import re

    return [re.sub(r"""(\w+=)("[^"]*"|'[^']*'|\S+)""", r"\1...", word) for word in words]


def command_line(pid: "int | str") -> "list[str]":
    """The words by which a process was begun; none where the kernel does not tell them."""
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\0").split("\0")
    except OSError:
        return []


def program_words(words: "list[str]") -> "list[str]":
    """Of a command line the interpreter, and the script, ``-m`` with its module, or ``-c`` with its text."""
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] not in ("-c", "-m"):
        del rest[: 2 if rest[0] in ("-X", "-W") else 1]
    return words[:1] + rest[: 2 if rest[:1] in (["-m"], ["-c"]) else 1]


def first_of(error: BaseException) -> BaseException:
    """What was raised: of a group the first in it, which may be a group."""
    for _ in range(MOST_POSITIONS):
        inside = asked(first_inside, error, otherwise=None)
        if not issubclass(kind_of(inside), BaseException):
            break
        error = inside
    return error


def first_inside(error: "Any") -> "Any":
    """The first exception of a group, also of one of a package for Python before 3.11; None of anything else."""
    return error.exceptions[0] if "ExceptionGroup" in kind_of(error).__name__ else None


def program_number() -> int:
    """What stands for the program that this process runs, whatever its arguments; 0 where nothing tells it."""
    import zlib

    words = program_words(command_line("self"))
    return zlib.crc32("\0".join(words).encode("utf-8", "replace")) if words else 0


def forget_former_attempt(folder: str) -> None:
    """Remove the exception that ended the same program before, which a shell tries again (``until python ...``).

    Of another program it is written down that one came behind it.
    """
    path = os.path.join(folder, f"result_rank{rank_by_environment()}.json")
    if not os.path.exists(path):
        return
    import json

    try:
        with open(path, encoding="utf-8") as file:
            former = json.load(file)
        if former.get("program") == program_number() != 0:
            os.remove(path)
        elif "begun" in former:
            former["begun"]["followed"] = True
            write_whole(path, former)
    except (OSError, ValueError, AttributeError):  # half written, or gone: whoever wrote it is not before us
        return


def name_of(kind: "type[BaseException]") -> str:
    """An exception's name, with its module unless it is one of Python's own."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def without_us(text: str) -> str:
    """The text of a traceback less the frames of our own wrappers, also where an exception's message quotes another."""
    lines: list[str] = []
    is_ours = False
    for line in text.splitlines(keepends=True):
        is_ours = line.lstrip().startswith(f'File "{__file__}"') or (is_ours and line.startswith("    "))
        lines += [] if is_ours else [line]
    return "".join(lines)


def start(folder: "str | None") -> None:
    """Begin to wait for torch; nothing happens without a trial's ``folder``."""
    if not folder:
        return
    show_lines_at_once()
    speaker = Speaker(folder)
    speaker.tell_of_an_alarm()
    watch_handlers(speaker)
    if not speaker.is_below:
        forget_former_attempt(folder)
    waiting = Waiting(speaker)
    for name in [name for name in waiting.hooks if name in sys.modules]:  # a .pth file was quicker
        waiting.hooks.pop(name)(speaker, sys.modules[name])
    sys.meta_path.insert(0, waiting)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=speaker.forked)
    tell_exceptions(speaker)
    speaker.be_watchable()
