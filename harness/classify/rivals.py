"""RIVALS: for a message or a verdict, the causes that compete, and the experiment that decides between them.

A message proves what it says and no more. Each entry names when it applies, and rivals with the signs for and against
each of them; what the original incident reports took for proof is among them.
"""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from harness.classify import signs
from harness.classify.messages import GPU_FAULTS
from harness.classify.signs import says, setting
from harness.core.verdict import Kind

if TYPE_CHECKING:
    from harness.classify.signs import Sign
    from harness.core.verdict import Case


@dataclass(frozen=True, slots=True)
class Rival:
    """A cause that competes with others, the signs for it and against it, and the ``test`` that decides.

    The test may depend on what the case shows: nobody need do again what was done.
    """

    cause: str
    because: str
    _: KW_ONLY
    pro: tuple[Sign, ...] = ()
    con: tuple[Sign, ...] = ()
    test: str | Sign

    def test_of(self, case: Case) -> str:
        """The test that decides in this case."""
        return self.test if isinstance(self.test, str) else self.test(case)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """When these rivals compete: all conditions that are given must hold.

    ``kinds`` and ``causes`` are of the verdict, ``unless`` are causes that it must not have; ``text`` is looked for in
    what the trial said, ``stack`` in the names of its frames; ``shows`` must say something of the case. ``limited``
    entries are about a limit, which a job that is only watched has none of. ``proven`` entries also apply to verdicts
    that are proof of what happened, because they are none of why.
    """

    name: str
    rivals: tuple[Rival, ...]
    kinds: frozenset[Kind] = frozenset()
    causes: frozenset[str] = frozenset()
    unless: frozenset[str] = frozenset()
    text: re.Pattern[str] | None = None
    stack: str = ""
    shows: Sign | None = None
    limited: bool = False
    proven: bool = False


SLOW = Rival(
    "slow",
    "it would have gone on: what it does, or waits for, only takes longer",
    pro=(*signs.FOR_SLOW, signs.within_prediction, signs.gpu_works),
    con=(signs.stacks_stay, signs.beyond_prediction, signs.asleep),
    test=signs.given_time(
        "a slow trial makes its next mark, a hung one never does",
        watched="what is only slow is somewhere else then",
    ),
)

RIVALS: tuple[Entry, ...] = (
    Entry(
        name="ready twice",
        text=re.compile(r"mark a variable ready only once|marked as ready twice"),
        proven=True,
        rivals=(
            Rival(
                "late-binding-closure",
                "a checkpointed lambda in a loop sees the loop's last block, so every recomputation runs that one",
                pro=(
                    signs.names_last_block,
                    setting("train.checkpointing", "reentrant"),
                ),
                con=(setting("train.checkpointing", "none"),),
                test="compare gradients with and without checkpointing in one process: with this bug all blocks but "
                "the last have none or wrong ones. Or pass the block itself: checkpoint(block, x)",
            ),
            Rival(
                "reentrant-and-find-unused",
                "reentrant checkpointing runs the reducer's hooks again that find_unused_parameters has already run",
                pro=(
                    setting("train.checkpointing", "reentrant"),
                    setting("parallel.find_unused_parameters", True),  # noqa: FBT003 - a value, not a switch
                ),
                con=(setting("parallel.find_unused_parameters", False),),  # noqa: FBT003
                test="run the four cells of checkpointing reentrant/nonreentrant x find_unused_parameters on/off",
            ),
            Rival(
                "parameter-reuse",
                "a module or parameter is used twice in one step under reentrant checkpointing",
                pro=(setting("model.tied_head", True),),  # noqa: FBT003
                con=(setting("model.tied_head", False),),  # noqa: FBT003
                test="turn static_graph on: it passes with a reused parameter and not with a wrong closure's gradients",
            ),
        ),
    ),
    Entry(
        name="last line before forward",
        text=re.compile(r"\[debug\] step \d+: input shape[^\n]*\s*$"),
        rivals=(
            Rival(
                "silence-by-design",
                "the last line is printed before forward, so it does not say where the program is: not in backward, "
                "not before it",
                pro=(signs.computes, signs.stacks_move),
                con=(signs.asleep,),
                test="read the stacks, or set train.trace_grads: an arriving gradient proves backward",
            ),
        ),
    ),
    Entry(
        name="in backward, says the Python stack",
        stack="_engine_run_backward",
        kinds=frozenset({Kind.UNRESOLVED}),
        rivals=(
            Rival(
                "slow-backward",
                "the Python stack of a healthy backward never changes: C++ works below it",
                pro=(signs.stacks_move, signs.computes, signs.memory_moves, signs.within_prediction),
                con=(signs.asleep, signs.beyond_prediction),
                test="look at native frames: 58 different ones in 79 samples of a healthy backward, one of a deadlock",
            ),
        ),
    ),
    Entry(
        name="waits for gradients",
        stack="Reducer::finalize_backward",
        shows=signs.ranks_unseen,
        kinds=frozenset({Kind.UNRESOLVED, Kind.HANG}),
        rivals=(
            Rival(
                "missing-rank",
                "DDP's own all-reduce waits for a rank that has not come: the fault is where that rank is, not here",
                pro=(
                    signs.in_stack("Reducer::finalize_backward", "the stack ends in the reducer's wait"),
                    signs.pending,
                ),
                con=(signs.none_pending,),
                test="read stacks and flight recorders of all ranks, not of this one",
            ),
        ),
    ),
    Entry(
        name="aborted",
        causes=frozenset({"SIGABRT"}),
        proven=True,
        rivals=(
            Rival(
                "nccl-watchdog",
                "torch's NCCL watchdog ends the process when a collective is longer open than its time-out",
                pro=(says(r"Watchdog caught collective operation timeout", "the watchdog said so"), signs.pending),
                con=(signs.none_pending,),
                test="raise parallel.timeout_s ten times: a slow job passes, a hung one is aborted later",
            ),
            Rival(
                "native-check",
                "a check in C++ failed (gloo, an allocator, an assertion)",
                pro=(says(r"terminate called after throwing an instance of '([^']+)'", "it threw {0}"),),
                test="run it with TORCH_SHOW_CPP_STACKTRACES=1 and read the frame below the throw",
            ),
        ),
    ),
    Entry(
        name="aborted at its end",
        causes=frozenset({"exit-abort"}),
        rivals=(
            Rival(
                "thread-destroyed",
                "an extension destroyed a C++ thread of its own that was still running: C++ says the same words",
                con=(says(r"<no Python frame>", "the thread that aborted runs no Python, and is not the main one"),),
                test="end the program by os._exit(0) behind destroy_process_group(): a thread that wanted the "
                "interpreter lets it pass, and gdb's backtrace at the abort shows take_gil or std::thread::~thread",
            ),
        ),
    ),
    Entry(
        name="killed",
        causes=frozenset({"SIGKILL"}),
        proven=True,
        rivals=(
            Rival(
                "out-of-memory-killer",
                "the kernel ended it for its memory",
                pro=(signs.memory_limit, signs.memory_grew),
                con=(signs.no_memory_limit,),
                test="run it in a memory cgroup of its own: the kernel counts its kills there",
            ),
            Rival(
                "somebody-else",
                "a scheduler, a launcher or a person sent it",
                pro=(signs.no_memory_limit,),
                con=(signs.memory_limit,),
                test="run it without the launcher; look at who else may end processes here",
            ),
        ),
    ),
    Entry(
        name="gpu full",
        causes=frozenset({"gpu-spin"}),
        rivals=(
            Rival(
                "collective-wait",
                "a wait inside NCCL reads the same: 100 % utilisation, no memory traffic, little power",
                pro=(signs.pending,),
                con=(signs.none_pending,),
                test="read the flight recorder of every rank while it hangs; without one, TORCH_FR_BUFFER_SIZE=2000",
            ),
            Rival(
                "long-kernel",
                "a kernel that computes in registers for very long, and ends",
                pro=(signs.within_prediction,),
                con=(signs.beyond_prediction, signs.gpu_occupied),
                test="run it at half the size: a long kernel's time shrinks, an endless one's does not; cuda-gdb "
                "(info cuda kernels) names it",
            ),
            Rival(
                "foreign-process",
                "the kernel is another process's, left over or somebody else's",
                pro=(signs.gpu_shared,),
                con=(signs.gpu_alone,),
                test="nsa-harness doctor lists who is on each GPU; run it on a GPU that nobody uses",
            ),
        ),
    ),
    Entry(
        name="ranks apart",
        causes=frozenset({"collective-mismatch", "unused-parameter"}),
        kinds=frozenset({Kind.HANG}),
        rivals=(
            Rival(
                "one-call-too-many",
                "a rank made a call that it should not, rather than another one too few",
                test="run it with one more rank: the side that stays alone is the wrong one",
            ),
        ),
    ),
    Entry(
        name="ranks whose calls match",
        causes=frozenset({"unused-parameter", "collective-stuck"}),
        kinds=frozenset({Kind.HANG}),
        rivals=(
            Rival(
                "network",
                "the calls that stacks show match, and a message between two ranks was lost",
                con=(signs.pending,),
                test="run all ranks on one host over the loopback (GLOO_SOCKET_IFNAME=lo, or NCCL_SOCKET_IFNAME=lo and "
                "NCCL_P2P_DISABLE=1)",
            ),
        ),
    ),
    Entry(
        name="ranks in one call",
        causes=frozenset({"collective-stuck"}),
        rivals=(
            Rival(
                "collective-mismatch",
                "the calls look alike but differ in shape, type or process group",
                test="print shape, type and group on every rank right before the call, and compare",
            ),
        ),
    ),
    Entry(
        name="straggler",
        causes=frozenset({"straggler"}),
        rivals=(
            Rival(
                "busy-core",
                "the rank is as fast as the others, but shares its core or its GPU",
                pro=(signs.gpu_shared,),
                con=(signs.gpu_alone,),
                test="give the late rank's data and GPU to another rank: what is late then, the place or the work",
            ),
            Rival(
                "infinite-loop",
                "the rank does not get anywhere, and its marks so far came from before",
                con=(signs.stacks_move, signs.memory_moves),
                test=signs.given_time("a late rank comes, a lost one does not"),
            ),
        ),
    ),
    Entry(
        name="host-bound",
        causes=frozenset({"host-bound"}),
        rivals=(
            Rival(
                "slow-data",
                "the host waits for data, not for Python",
                pro=(signs.in_stack("_next_data", "the stack is in the DataLoader"),),
                con=(signs.computes,),
                test="run it with train.data = synthetic",
            ),
            Rival(
                "shared-cores",
                "other processes take the host's cores",
                test="run it alone, pinned to two cores: the time per step stays if it is host-bound by itself",
            ),
        ),
    ),
    Entry(
        name="allocator",
        causes=frozenset({"allocator-thrash"}),
        rivals=(
            Rival(
                "foreign-process",
                "another process holds the memory that is missing",
                pro=(signs.gpu_shared,),
                con=(signs.gpu_alone,),
                test="run it on a GPU that nobody uses",
            ),
            Rival(
                "memory-leak",
                "less and less is left because the program keeps what it used",
                pro=(signs.memory_grew,),
                test="plot gpu_allocated_bytes over the steps: a leak climbs, changing sizes swing",
            ),
        ),
    ),
    Entry(
        name="out of memory",
        kinds=frozenset({Kind.OOM}),
        proven=True,
        rivals=(
            Rival(
                "too-large",
                "one step needs more than there is",
                con=(signs.memory_grew,),
                test="run it at half the length or with checkpointing: the peak moves with it",
            ),
            Rival(
                "memory-leak",
                "every step keeps some memory of the one before",
                pro=(signs.memory_grew,),
                test="run twice as many steps at half the size: a leak fails later, a large step never",
            ),
            Rival(
                "fragmentation",
                "there is enough in all, but not in one piece",
                pro=(says(r"reserved by PyTorch but unallocated is (\S+ [GM]iB)", "{0} is reserved and not used"),),
                test="run it with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            ),
            Rival(
                "foreign-process",
                "another process holds the memory",
                pro=(signs.gpu_shared,),
                con=(signs.gpu_alone,),
                test="run it on a GPU that nobody uses; memory that a model of this size cannot need is somebody's",
            ),
        ),
    ),
    Entry(
        name="somebody else's process",
        causes=frozenset({"foreign-process"}),
        rivals=(
            Rival(
                "own-leftover",
                "the process is one of an earlier trial that was not ended",
                pro=(signs.gpu_shared,),
                test="nsa-harness doctor lists leftovers with the run that they belong to",
            ),
        ),
    ),
    Entry(
        name="wait for a lock",
        causes=frozenset({"deadlock", "native-lock", "native-wait", "unseen-wait", "gil-held"}),
        kinds=frozenset({Kind.HANG}),
        rivals=(
            Rival(
                "slow-holder",
                "whoever has the lock, or is to wake this thread, is only slow",
                pro=(signs.computes, signs.memory_moves),
                con=(signs.asleep, signs.stacks_stay),
                test=signs.given_time("a slow holder gives it back"),
            ),
        ),
    ),
    Entry(
        name="wait for the outside",
        causes=frozenset({"blocked-io", "uninterruptible-io", "waiting-for-child", "data-starvation", "blocked-pipe"}),
        kinds=frozenset({Kind.HANG}),
        rivals=(
            Rival(
                "slow-device",
                "the disk, the network or the child answers in the end",
                pro=(signs.memory_moves,),
                con=(signs.asleep,),
                test=signs.given_time(
                    "it goes on if the answer is only late. Or run it with synthetic data on a local disk: what hangs "
                    "then is the program"
                ),
            ),
        ),
    ),
    Entry(
        name="raised, and the whole ended well",
        kinds=frozenset({Kind.CRASH}),
        shows=signs.ended_well,
        rivals=(
            Rival(
                "on-purpose",
                "whoever began that process went on without it on purpose",
                pro=(signs.ended_well,),
                test="look at what began it: behind `||` or `if` it may fail; with `set -e -o pipefail` the whole "
                "fails where it is not meant to",
            ),
        ),
    ),
    Entry(
        name="stopped just before",
        kinds=frozenset({Kind.CRASH}),
        shows=lambda case: signs.stopped_just_before(case, None)[0],
        rivals=(
            Rival(
                "our-look",
                "a call of it ended early because the process had been stopped to see its stacks",
                test="run it without nsa-harness: what is its own fault fails there too",
            ),
        ),
    ),
    Entry(
        name="an error of a GPU",
        causes=GPU_FAULTS,
        proven=True,
        rivals=(
            Rival(
                "earlier-call",
                "a kernel that was started before this line: a GPU tells of it at the next call that waits for it",
                test="run it with CUDA_LAUNCH_BLOCKING=1 in its environment: the line is then that of the kernel",
            ),
        ),
    ),
    Entry(
        name="gave up waiting",
        kinds=frozenset({Kind.CRASH}),
        unless=frozenset({"exit-abort"}),
        shows=signs.of_several_ranks,
        rivals=(
            Rival(
                "late-rank",
                "the rank that did not come was only late, and the time-out shorter than its work",
                pro=(signs.stacks_move, signs.computes),
                con=(signs.stacks_stay, signs.asleep),
                test="raise parallel.timeout_s ten times: a late rank comes, a lost one does not",
            ),
        ),
    ),
    Entry(name="a loop", causes=frozenset({"infinite-loop"}), rivals=(SLOW,)),
    Entry(
        name="only slow",
        kinds=frozenset({Kind.SLOW}),
        limited=True,
        rivals=(
            Rival(
                "shared-machine",
                "other work on this machine took the time",
                pro=(signs.gpu_shared,),
                con=(signs.gpu_alone,),
                test=signs.alone,
            ),
            Rival(
                "limit-too-short",
                "nothing is wrong: a healthy trial of this size takes as long",
                pro=(signs.within_prediction,),
                test=signs.of_its_size,
            ),
        ),
    ),
    Entry(
        name="undecided",
        kinds=frozenset({Kind.UNRESOLVED}),
        rivals=(
            SLOW,
            Rival(
                "stuck",
                "nothing that it waits for will come",
                pro=(signs.stacks_stay, signs.asleep, signs.beyond_prediction, signs.pending, signs.gpu_occupied),
                con=(signs.stacks_move, signs.memory_moves, signs.within_prediction, signs.may_be_ended),
                test=signs.longer_with_native_frames,
            ),
        ),
    ),
    Entry(
        name="any hang but of calls that never meet",
        kinds=frozenset({Kind.HANG}),
        unless=frozenset({"collective-mismatch", "unused-parameter"}),
        rivals=(SLOW,),
    ),
)
"""The most special first; a rival that an earlier entry has named already is not named again."""
