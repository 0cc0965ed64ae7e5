"""What moved in a process between looks at /proc, and which of its threads mean something by moving.

Every process of a live job wakes now and then: gloo's transport a hundred times a second, NCCL's watchdog, tqdm's
monitor every ten seconds, a driver's event thread. None of these says that training goes on. So movement is counted of
the threads that carry the program, and the others are *background*: known by their name, or seen to do nothing but
poll with a time limit, without running the program's own code, or to look on by their source (``background``).

Only windows in which no stack dumper ran are counted: a dumper itself causes switches, faults and CPU time. And only
the latest ones, back to the third-last stack sample: what a process did ten seconds ago is not what it does now.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import TYPE_CHECKING

from harness.reading.frames import is_own, is_service, is_stdlib, package, python_frames
from harness.reading.waits import Ender, listens_for_peers, wait_of, waits_for_a_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.core.evidence import EvidenceId, ProcessState, StackSample, ThreadStack, ThreadState

SAMPLES = 3
"""Stack samples that must agree."""

APART_S = 0.9
"""Seconds between two dumps."""

WINDOWS = 2
"""Undisturbed windows that it takes to say that nothing moves."""

STILL_CPU_S = 0.002
"""A window with no more CPU time than this counts as still; a sleeping process measures 0 exactly."""

STILL_SWITCHES = 2
"""A window with no more context switches than this counts as still."""

STILL_FAULTS = 2
"""A window with no more page faults than this counts as still."""

_BY_THE_CLOCK = frozenset({"", "futex", "nanosleep", "clock_nanosleep"})
"""System calls in which a thread waits for the time, or for a lock of its own process."""

POLL_SHARE = 0.1
"""CPU seconds per second of a process that only asks again and again whether something has come; a rank that waits in a
rendezvous for another measured 0.02."""

BUSY_SHARE = 0.02
"""CPU seconds per second of a thread that is never seen waiting: what is left to it on a machine with 50 rivals."""

STOPPED_S = 5.0
"""A process that was seen stopped (state T) for so long is not merely between Ctrl-Z and fg."""

RSS_FLOOR_BYTES = 1 << 20
FAULTS_FLOOR_PER_S = 20.0
"""Page faults a second below which memory does not move; healthy but slow steps measured 2,700 to 9,500."""

KEEPS_ALIVE_BYTES_PER_S = 256.0
"""Bytes a second that a process may read and write without anything of it moving: a rank on its way into a communicator
of NCCL measured 66, of its watchdog and its store."""

STORE_SERVER = "pt_tcpstore"
"""How torch calls the thread that serves a store to all who are connected to it."""

RUNS_COLLECTIVES = "pt_gloo_runloop"
"""How torch calls the threads that wait for other ranks over gloo, and then call what the program gave the result."""

TICKERS = (
    "gloo_tcp_loop",
    RUNS_COLLECTIVES,
    STORE_SERVER,
    "pt_workerserver",
    "pt_nccl_watchdg",
    "pt_nccl_heartbt",
    "cuda-EvtHandlr",
)
"""Beginnings of the names of threads that keep connections and drivers alive: they wake by a timer whether or not the
program moves (gloo's transport 100 times a second, measured), and carry it on only when another process sends."""

_OF_CUDAS = re.compile(r"cuda0[0-9a-f]{6,}$")
"""CUDA's own workers. A program may call a thread of its own ``cuda0-loader``."""

REPORTS = "pt_nccl_heartbt"
"""Name of torch's threads that write a flight recorder. They do so because we ask, for half a minute beside a loop that
keeps the interpreter's lock, and read files and touch new memory meanwhile."""

_OF_A_GPU = ("pt_nccl", "cuda")
"""Beginnings of the names of threads that a process has whose messages a GPU may carry."""

TICKER_SHARE = 0.05
"""CPU seconds per second that a background thread may use without meaning anything; 0.004 measured when idle."""

OFTEN_PER_S = 0.5
"""Times a second that a thread must have woken to be one that asks again and again, and not one that sleeps once."""

MOSTLY = 0.5
"""Share of the looks at which a thread must be seen in its poll to be background."""

SEES_ALL = ("py-spy", "pystack")
"""Stack sources that show every thread in which Python runs, by the kernel's number."""

QUIET_PACKAGES = frozenset(
    {"tqdm", "rich", "tensorboard", "tensorboardX", "wandb", "torch", "mlflow", "comet_ml", "sentry_sdk"}
)
"""Packages whose threads call nothing of the program's."""

_DO_WORK = frozenset({"torch"})
"""Those of them that programs call in threads of their own, and then wait for: to save, or to fetch weights."""

_POOLS = ("concurrent/futures/thread.py", "multiprocessing/pool.py")
"""Files whose threads do what a program has handed over, and will ask for the result of."""

ASLEEP = frozenset("SDI")
"""States in which a thread waits: S for an event, D for a device, I an idle kernel thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The change between two looks at one process with no dumper between them, background threads left out.

    ``switches`` are context switches of both kinds. ``threads_changed`` counts threads that started or ended,
    ``running`` those in state R at either look; ``cpu_by_thread`` is CPU time by thread, seconds.
    """

    first: EvidenceId
    last: EvidenceId
    seconds: float
    cpu_s: float
    switches: int
    minor_faults: int
    io_bytes: int
    rss_bytes: int
    threads_changed: int
    running: int
    cpu_by_thread: tuple[tuple[int, float], ...] = ()

    @property
    def cpu_share(self) -> float:
        """CPU seconds per second; 1.0 is one core kept busy."""
        return self.cpu_s / self.seconds if self.seconds > 0 else 0.0

    @property
    def still(self) -> bool:
        """Whether nothing at all moved: no CPU, switches, faults or I/O beyond noise."""
        return (
            self.cpu_s <= STILL_CPU_S
            and self.switches <= STILL_SWITCHES
            and self.minor_faults <= STILL_FAULTS
            and self.io_bytes == 0
            and self.threads_changed == 0
            and self.running == 0
        )

    @property
    def rests(self) -> bool:
        """Whether nothing moved, or it slept at both looks and hardly computed in between."""
        return self.still or (self.running == 0 and self.cpu_share <= POLL_SHARE)

    def __str__(self) -> str:
        return (
            f"in {self.seconds:.1f} s: CPU {self.cpu_s:.3f} s, {self.switches} context switches, "
            f"{self.minor_faults} page faults, {self.io_bytes} bytes of I/O"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Motion:
    """What one process did in its latest undisturbed windows; ``looks`` are those that the windows lie between.

    ``threads`` are the threads that count at the last look.
    """

    pid: int
    looks: tuple[ProcessState, ...]
    windows: tuple[Window, ...]
    threads: tuple[ThreadState, ...]
    background: frozenset[int] = field(default=frozenset())

    @property
    def seconds(self) -> float:
        """Undisturbed time that was looked at."""
        return sum(window.seconds for window in self.windows)

    @property
    def cpu_s(self) -> float:
        """CPU time of the process in that time."""
        return sum(window.cpu_s for window in self.windows)

    @property
    def cpu_share(self) -> float:
        """CPU seconds per second."""
        return self.cpu_s / self.seconds if self.seconds > 0 else 0.0

    @property
    def switches(self) -> int:
        """Context switches of all threads that count."""
        return sum(window.switches for window in self.windows)

    @property
    def faults(self) -> int:
        """Page faults."""
        return sum(window.minor_faults for window in self.windows)

    @property
    def io_bytes(self) -> int:
        """Bytes read and written."""
        return sum(window.io_bytes for window in self.windows)

    @property
    def rss_bytes(self) -> int:
        """Growth of resident memory within the windows: a dump moves it too (1.3 MB measured, without a fault)."""
        return sum(window.rss_bytes for window in self.windows)

    @property
    def states(self) -> frozenset[str]:
        """The states in which threads that count were seen."""
        states: set[str] = set()
        for look in self.looks:
            states.update(thread.state for thread in look.threads if thread.tid not in self.background)
        return frozenset(states)

    @property
    def main_timed(self) -> bool:
        """Whether the main thread waited with a time limit at any look."""
        return any(thread.timed for thread in self.history(self.pid))

    @property
    def main_wchan(self) -> str:
        """The kernel function that the main thread sleeps in."""
        main = self.looks[-1].thread.get(self.pid)
        return "" if main is None else main.wchan

    @property
    def still(self) -> bool:
        """Whether every thread that counts was asleep at every look, and nothing of the process moved in any window."""
        return len(self.windows) >= WINDOWS and self.rested

    @property
    def rested(self) -> bool:
        """The same of however few windows there are: one shows that something moves, and not that nothing does."""
        return self.states <= ASLEEP and all(window.still for window in self.windows)

    @property
    def has_changed(self) -> bool:
        """Whether the last look, to which no window may lead, shows other threads or waits than the last window.

        A wait with a time limit that has become one without is another one.
        """
        closing = next(look for look in self.looks if look.id == self.windows[-1].last)
        before = closing.thread
        last = self.looks[-1].thread
        if (before.keys() ^ last.keys()) - self.background:
            return True
        for tid, thread in last.items():
            earlier = before.get(tid)
            if earlier is not None and earlier.timed and thread.timed is False:
                return True
        return False

    @property
    def lost_a_thread(self) -> bool:
        """Whether a thread that was seen lately has ended by the last look."""
        ever: set[int] = set()
        for look in self.looks:
            ever.update(look.thread)
        return bool(ever - self.looks[-1].thread.keys() - self.background)

    @property
    def polls(self) -> bool:
        """Whether it slept at every look and hardly computed in between: it waits, if only by asking again."""
        return (
            len(self.windows) >= WINDOWS and all(w.running == 0 for w in self.windows) and self.cpu_share <= POLL_SHARE
        )

    @property
    def busiest(self) -> int:
        """The thread that used most CPU time."""
        used: dict[int, float] = {}
        for window in self.windows:
            for tid, seconds in window.cpu_by_thread:
                used[tid] = used.get(tid, 0.0) + seconds
        return max(used, key=lambda tid: used[tid], default=0)

    @property
    def busy(self) -> bool:
        """Whether one thread computes, or would if it were its turn, at every look."""
        return {thread.state for thread in self.history(self.busiest)} == {"R"} and self.cpu_share >= BUSY_SHARE

    @property
    def counters_still(self) -> bool:
        """Whether neither memory nor page faults nor I/O moved."""
        return self._memory_still and self.io_bytes == 0

    @property
    def data_still(self) -> bool:
        """The same, but for the few bytes by which threads beside the program's own keep its connections alive."""
        return self._memory_still and self.io_bytes <= KEEPS_ALIVE_BYTES_PER_S * self.seconds

    def rests_beside(self, tid: int) -> bool:
        """Whether nothing of it moves but thread ``tid``, which computes, and threads that write what we asked for."""
        if self.data_still:
            return True
        before, last = self.looks[0].thread, self.looks[-1]
        wrote = False
        for thread in last.threads:
            since_s = before[thread.tid].cpu_s if thread.tid in before else 0.0
            if thread.tid == tid or thread.cpu_s - since_s <= BUSY_SHARE * self.seconds:
                continue
            if thread.name != REPORTS:
                return False
            wrote = True
        return wrote

    @property
    def background_woke(self) -> bool:
        """Whether a background thread woke between the first look and the last: without CPU time none does."""
        before, last = self.looks[0].thread, self.looks[-1].thread
        for tid in self.background & before.keys() & last.keys():
            if last[tid].voluntary_switches > before[tid].voluntary_switches:
                return True
        return False

    def history(self, tid: int) -> list[ThreadState]:
        """One thread, look by look."""
        states: list[ThreadState] = []
        for look in self.looks:
            state = look.thread.get(tid)
            if state is not None:
                states.append(state)
        return states

    @property
    def _memory_still(self) -> bool:
        return abs(self.rss_bytes) < RSS_FLOOR_BYTES and self.faults <= FAULTS_FLOOR_PER_S * self.seconds


def motion(
    looks: Sequence[ProcessState], samples: Sequence[StackSample] = (), *, since_s: float = 0.0
) -> Motion | None:
    """What one process did lately, by looks and stack samples of it alone; None without an undisturbed window.

    ``since_s`` is when its silence began; of what came after it, only what came after the third-last sample counts.
    """
    silent = [look for look in looks if look.t_s > since_s]
    if not silent:
        return None
    behind = background(silent, samples)
    dumps_s = dump_times(sample for sample in samples if sample.t_s > since_s)
    looks = silent
    if len(dumps_s) >= SAMPLES:
        looks = [look for look in silent if look.t_s > dumps_s[-SAMPLES]]
    windows = quiet_windows(looks, behind=behind)
    if len(windows) < WINDOWS:  # on a busy machine a dump takes as long as the pause between two
        windows, looks = quiet_windows(silent, behind=behind), silent
    if not windows:
        return None
    return Motion(
        pid=looks[-1].pid,
        looks=tuple(looks),
        windows=windows,
        threads=tuple(thread for thread in looks[-1].threads if thread.tid not in behind),
        background=behind,
    )


def dump_times(samples: Iterable[StackSample]) -> list[float]:
    """When stacks of one process were taken; two sources that were asked one after the other make one dump."""
    times: list[float] = []
    for sample in samples:
        if not times or sample.t_s - times[-1] >= APART_S:
            times.append(sample.t_s)
    return times


def quiet_windows(looks: Iterable[ProcessState], *, behind: frozenset[int] = frozenset()) -> tuple[Window, ...]:
    """The longest window from every look that opens one, of looks at one or several processes, in order."""
    by_id: dict[EvidenceId, ProcessState] = {}
    windows: dict[EvidenceId, Window] = {}
    for look in looks:
        by_id[look.id] = look
        if look.undisturbed_since in by_id:
            opening = by_id[look.undisturbed_since]
            if look.t_s > opening.t_s:
                windows[opening.id] = between(opening, look, behind=behind)
    return tuple(windows.values())


def between(first: ProcessState, last: ProcessState, *, behind: frozenset[int] = frozenset()) -> Window:
    """What happened between two looks at the same process; ``behind`` are its background threads."""
    before = first.thread
    seconds = last.t_s - first.t_s
    cpu_s, switches = 0.0, 0
    cpu_by_thread: list[tuple[int, float]] = []
    for thread in last.threads:
        old = before.get(thread.tid)
        used_s = thread.cpu_s - (old.cpu_s if old else 0.0)
        if thread.tid in behind or is_ticker(thread):
            cpu_s += used_s if used_s > TICKER_SHARE * seconds else 0.0
            continue
        cpu_s += used_s
        cpu_by_thread.append((thread.tid, used_s))
        switches += thread.switches - (old.switches if old else 0)
    counted = running = 0
    for thread in (*first.threads, *last.threads):
        if thread.tid not in behind and not is_ticker(thread):
            counted += 1
            running += thread.state == "R"
    # A thread that was not switched once did not run: with all others so, faults and bytes are the background's.
    only_background = not switches and not running and counted < len(first.threads) + len(last.threads)
    changed = before.keys() ^ last.thread.keys()
    return Window(
        first=first.id,
        last=last.id,
        seconds=seconds,
        cpu_s=cpu_s,
        switches=switches,
        minor_faults=0 if only_background else last.minor_faults - first.minor_faults,
        io_bytes=0
        if only_background
        else last.read_bytes - first.read_bytes + last.written_bytes - first.written_bytes,
        rss_bytes=last.rss_bytes - first.rss_bytes,
        threads_changed=len(changed - behind),
        running=running,
        cpu_by_thread=tuple(cpu_by_thread),
    )


def background(looks: Sequence[ProcessState], samples: Sequence[StackSample]) -> frozenset[int]:
    """The threads of one process whose waking says nothing about the program.

    By name; or because they poll with a time limit, use next to no CPU, and no sample has seen them in Python; or
    because they are NCCL's and listen for the job's other ranks; or because all the Python that they run is the
    standard library's and that of a package in which the main thread does not wait: a progress bar's monitor has
    nothing to do with the lock that training waits for, though a trainer of that package called it; or because by
    their source they merely look on, and were seen to wake: then what they do next they have done before. They do so
    for ever where somebody waits for the end of a thread. Without a sample of a source that sees every thread, only
    names count.
    """
    pid = looks[-1].pid if looks else 0
    tids: set[int] = set()
    states: dict[int, list[tuple[float, ThreadState]]] = {}
    for look in looks:
        for thread in look.threads:
            if is_ticker(thread):
                tids.add(thread.tid)
            if thread.tid != pid:
                states.setdefault(thread.tid, []).append((look.t_s, thread))
    if not states or not any(sample.source.startswith(SEES_ALL) for sample in samples):
        return frozenset(tids)
    stacks: dict[int, list[ThreadStack]] = {}
    joined = False
    for sample in samples:
        for thread in sample.threads:
            joined = joined or waits_for_a_thread(thread)
            if python_frames(thread):
                stacks.setdefault(thread.tid, []).append(thread)
    onlookers = _in_all(samples, [sample.endless_onlookers if joined else sample.onlookers for sample in samples])
    asleep = unwoken(looks)
    mains: set[str] = set()
    for stack in stacks.get(pid, ()):
        mains.update(map(package, takewhile(lambda frame: not is_own(frame), python_frames(stack))))
    for tid, history in states.items():
        own = stacks.get(tid)
        if own is None:
            is_behind = _only_polls(history) or all(listens_for_peers(thread) for _, thread in history)
        else:
            looks_on = tid in onlookers and tid not in asleep and _idle(history)
            is_behind = looks_on or all(map(is_service, own)) or _housekeeping(own, mains, history)
        if is_behind:
            tids.add(tid)
    return frozenset(tids)


def ever_woken(looks: Sequence[ProcessState]) -> set[int]:
    """The threads that an undisturbed window saw wake."""
    by_id = {look.id: look for look in looks}
    woke: set[int] = set()
    for look in looks:
        if look.undisturbed_since in by_id:
            woke |= _woken(by_id[look.undisturbed_since], look)
    return woke


def unwoken(looks: Sequence[ProcessState]) -> frozenset[int]:
    """The threads that sleep on a timer from which no undisturbed window saw them wake: not those that tick."""
    woke = ever_woken(looks)
    asleep: set[int] = set()
    for thread in looks[-1].threads:
        if thread.timed and thread.tid not in woke and not _outlasts_its_limit(looks, thread):
            asleep.add(thread.tid)
    return frozenset(asleep)


def _outlasts_its_limit(looks: Sequence[ProcessState], thread: ThreadState) -> bool:
    """Whether a thread was seen in one wait for twice as long as that may last: it woke, and began the same anew."""
    if thread.limit_s is None:
        return False
    since_s = looks[-1].t_s
    for look in reversed(looks):
        before = look.thread.get(thread.tid)
        if before is None or before.wchan != thread.wchan or before.state not in ASLEEP:
            break
        since_s = look.t_s
    return looks[-1].t_s - since_s > 2 * thread.limit_s


def _woken(first: ProcessState, last: ProcessState) -> set[int]:
    """The threads that slept at one look at a process and woke before the next: not those that only fell asleep."""
    after = last.thread
    woke: set[int] = set()
    for thread in first.threads:
        later = after.get(thread.tid, thread)
        if thread.state in ASLEEP and later.voluntary_switches != thread.voluntary_switches:
            woke.add(thread.tid)
    return woke


def is_of_a_gpu(thread: ThreadState) -> bool:
    """Whether it is a thread of CUDA's, or of NCCL's."""
    return thread.name.startswith(_OF_A_GPU)


def may_use_a_gpu(look: ProcessState) -> bool:
    """Whether a GPU may carry what a process sends, or make it wait."""
    return look.has_a_card and any(map(is_of_a_gpu, look.threads))


def onlookers_of(samples: Sequence[StackSample]) -> frozenset[int]:
    """The threads that look on in every sample which shows what Python they run."""
    return _in_all(samples, [sample.onlookers for sample in samples])


def plain_onlookers_of(samples: Sequence[StackSample]) -> frozenset[int]:
    """Those of them behind whose calls no other file of the program can put anything."""
    return _in_all(samples, [sample.plain_onlookers for sample in samples])


def launchers_of(samples: Sequence[StackSample]) -> frozenset[int]:
    """Those of them in a loop that only the end of a process ends."""
    return _in_all(samples, [sample.launchers for sample in samples])


def supervisors_of(samples: Sequence[StackSample]) -> frozenset[int]:
    """The onlookers that by any sample do more once a process ends for which they ask."""
    return frozenset(chain.from_iterable(sample.supervisors for sample in samples))


def _in_all(samples: Sequence[StackSample], looking: Sequence[tuple[int, ...]]) -> frozenset[int]:
    """The threads named for any sample, less those that another one shows to run Python and does not name."""
    tids = set[int]().union(*looking)
    for sample, of_sample in zip(samples, looking, strict=True):
        for thread in sample.threads:
            if thread.tid not in of_sample and python_frames(thread):
                tids.discard(thread.tid)
    return frozenset(tids)


def actors_of(samples: Sequence[StackSample]) -> frozenset[int]:
    """The threads that by any sample may do what another waits for."""
    tids: set[int] = set()
    for sample in samples:
        tids.update(sample.actors)
    return frozenset(tids)


def _housekeeping(stacks: Sequence[ThreadStack], mains: set[str], history: Sequence[tuple[float, ThreadState]]) -> bool:
    """Whether a thread with Python frames only looks after a package that the main thread does not wait in.

    Not one of a pool, which works for whoever asks for its result. Of one that is not quiet only if it wakes again and
    again by the clock: it may be what the program waits for, as a pool's thread that calls ``requests.get``, or one
    that asks a connection ten times a second whether a message has come, and then calls what it was given.
    """
    packages: set[str] = set()
    for stack in stacks:
        if any(frame.file.endswith(_POOLS) for frame in python_frames(stack)):
            return False
        packages.update(package(frame) for frame in python_frames(stack) if not is_stdlib(frame))
    if not packages or "" in packages or packages & mains:
        return False
    if packages & _DO_WORK and any(map(_is_served_from_outside, history)):
        return False
    if not packages <= QUIET_PACKAGES and not (_wakes_often(history) and _sleeps_by_the_clock(history)):
        return False
    return _idle(history)


def _is_served_from_outside(moment: tuple[float, ThreadState]) -> bool:
    """Whether a thread waits for a device, or for somebody outside: its work goes on, and may be what is awaited."""
    _, state = moment
    wait = wait_of(state)
    return wait is not None and (state.state == "D" or bool(wait.outside) or Ender.DEVICE in wait.enders)


def _sleeps_by_the_clock(history: Sequence[tuple[float, ThreadState]]) -> bool:
    """Whether a thread was never seen in a call that something other than time or its own process ends."""
    return all(state.call in _BY_THE_CLOCK for _, state in history)


def _only_polls(history: Sequence[tuple[float, ThreadState]]) -> bool:
    """Whether a thread without Python polls with a time limit at most looks, and was never seen to wait without one.

    Of a poll that goes on after a stack dump, or ends while it is looked at, the kernel tells no limit.
    """
    polls = 0
    for _, thread in history:
        # One that wakes two hundred times a second is now and then seen awake, or between two waits.
        if thread.state not in "RS" or (thread.timed is False and thread.wchan):
            return False
        polls += thread.state == "S" and bool(thread.timed)
    return polls >= MOSTLY * len(history) and _wakes_often(history) and _idle(history)


def _wakes_often(history: Sequence[tuple[float, ThreadState]]) -> bool:
    (first_s, first), (last_s, last) = history[0], history[-1]
    return last.switches - first.switches >= OFTEN_PER_S * max(last_s - first_s, 1.0)


def _idle(history: Sequence[tuple[float, ThreadState]]) -> bool:
    (first_s, first), (last_s, last) = history[0], history[-1]
    return last.cpu_s - first.cpu_s <= TICKER_SHARE * max(last_s - first_s, 1.0)


def is_ticker(thread: ThreadState) -> bool:
    """Whether a thread only keeps connections and drivers alive, by its name."""
    return thread.name.startswith(TICKERS) or _OF_CUDAS.match(thread.name) is not None


def stopped_s(looks: Sequence[ProcessState]) -> float:
    """How long one process has been in state T by now, as far as it was seen, seconds; 0 when it is not stopped.

    A tracer's stop is the lower-case t, and does not count.
    """
    if not looks or looks[-1].state != "T":
        return 0.0
    since_s = looks[-1].t_s
    for look in reversed(looks):
        if look.state != "T":
            break
        since_s = look.t_s
    return looks[-1].t_s - since_s
