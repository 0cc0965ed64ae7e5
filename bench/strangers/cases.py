"""Cases drawn from a seed: which host, started how, with what at which step and phase of which rank."""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.strangers.hosts import HOSTS, PRELUDE, STEPS
from bench.strangers.launchers import OWN
from bench.strangers.troubles import TROUBLES

if TYPE_CHECKING:
    from bench.strangers.hosts import Host
    from bench.strangers.troubles import Trouble

FIRST_OF_RELEASE = 1000
"""Seeds below are for development and may have been looked at; these and above are drawn once, for a release."""

KINDS = (("HANG", 0.5), ("CRASH", 0.1), ("PASS", 0.4))
"""How often each kind is drawn, whatever the number of troubles of that kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One program with one trouble; ``number`` and ``seed`` draw the same one again for as many ``gpus``.

    ``rank`` is the one that the trouble comes to, None: every one.
    """

    seed: int
    number: int
    host: Host
    trouble: Trouble
    launcher: str
    phase: str
    step: int
    rank: int | None
    gpus: int = 0

    @property
    def name(self) -> str:
        """``ddp+lock-twice``."""
        return f"{self.host.name}+{self.trouble.name}"

    def __str__(self) -> str:
        rank = "every rank" if self.rank is None else f"rank {self.rank}"
        where = f"{self.phase} of step {self.step}" + (f", {rank}" if self.host.ranks > 1 else "")
        return f"{self.seed}:{self.number} {self.name} ({self.launcher}; {where})"

    @property
    def struck(self) -> tuple[int, ...]:
        """The ranks that the trouble comes to."""
        return tuple(range(self.host.ranks)) if self.rank is None else (self.rank,)

    @property
    def hangs_without_it(self) -> bool:
        """Whether the other ranks wait for one that has ended: over NCCL, where nobody ends them."""
        return self.gpus > 1 and self.launcher in ("srun", "bash-ranks")

    @property
    def source(self) -> str:
        """The program's text."""
        body = "\n".join(f"    {line}" for line in self.trouble.strike.strip().splitlines())
        values = {
            "@PHASE@": repr(self.phase),
            "@STEP@": str(self.step),
            "@RANKS@": repr(self.struck),
            "@STRIKE@": f"def strike():\n{body}",
        }
        text = PRELUDE
        for name, value in values.items():
            text = text.replace(name, value)
        return text + self.host.text.replace("@STEPS@", str(STEPS))

    @property
    def launch(self) -> str:
        """The text of the launcher written by hand; empty where it is started otherwise."""
        return OWN[self.number % len(OWN)] if self.launcher == "own" else ""

    def command(self, python: str, *, port: int) -> str:
        """How the program is started, as a line for ``bash -c``; a torchrun without the script ``torchrun`` on PATH."""
        ranks = self.host.ranks
        each = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={port} {python} train.py"
        # On a CPU accelerate starts several ranks by MPI alone; those that want none say --multi_gpu.
        kind = "--multi_gpu" if ranks > 1 else "" if self.gpus else "--cpu"
        accelerate = f"accelerate.commands.launch {kind} --num_processes {ranks} --num_machines 1"
        elastic = f"torch.distributed.run --nproc-per-node {ranks} --master-port {port}"
        loop = f"for r in {' '.join(map(str, range(ranks)))}; do {{}} {each} & pids+=($!); done"
        wait = "code=0; for p in ${pids[@]}; do wait $p || code=1; done; exit $code"
        return {
            "python": f"MASTER_PORT={port} exec {python} train.py",
            "bash": f"echo starting; {python} train.py; exit $?",
            "torchrun": f"exec {python} -m {elastic} train.py",
            "accelerate": f"exec {python} -m {accelerate} --main_process_port {port} --mixed_precision no"
            " --dynamo_backend no train.py",
            "srun": f"{loop.format(f'SLURM_PROCID=$r SLURM_LOCALID=$r SLURM_NTASKS={ranks}')}; {wait}",
            "bash-ranks": f"{loop.format(f'RANK=$r WORLD_SIZE={ranks} LOCAL_RANK=$r')}; {wait}",
            "own": f"exec {python} launch.py {ranks} {port}",
        }[self.launcher]


def packages(python: str) -> frozenset[str]:
    """Which of the packages that hosts need the interpreter ``python`` has."""
    wanted = sorted({name for host in HOSTS.values() for name in host.needs})
    code = "import importlib.util as u, sys; print(*[n for n in sys.argv[1:] if u.find_spec(n)])"
    return frozenset(
        subprocess.run([python, "-c", code, *wanted], capture_output=True, text=True, check=True).stdout.split()
    )


def draw(seed: int, count: int, *, only: str = "", has: frozenset[str] = frozenset(), gpus: int = 0) -> list[Case]:
    """``count`` cases of a seed; ``only`` keeps those whose name has it.

    Hosts that need other packages than those that the interpreter ``has`` are left out. On one GPU only programs of one
    process are drawn, on two those of two ranks; every second time with a trouble of GPUs or of ranks.
    """
    rng = random.Random(seed)
    hosts = [host for host in HOSTS.values() if has.issuperset(host.needs) and runs_on(host, gpus=gpus)]
    troubles = [one for one in TROUBLES.values() if (gpus or not one.gpu) and suits(one, hosts)]
    found: list[Case] = []
    number = 0
    while len(found) < count and number < 1000 * max(count, 1):
        number += 1
        (kind,) = rng.choices([k for k, _ in KINDS], [weight for _, weight in KINDS])
        fit = [one for one in troubles if one.expect == kind]
        theirs = [one for one in fit if one.gpu or one.ranks > 1] if gpus else []
        trouble = rng.choice(theirs if theirs and rng.random() < 0.5 else fit)
        host = rng.choice(suits(trouble, hosts))
        phase = rng.choice(trouble.where)
        case = Case(
            seed=seed,
            number=number,
            host=host,
            trouble=trouble,
            launcher=rng.choice(host.launchers),
            phase=phase,
            step=rng.randint(3, STEPS - 4) // 3 * 3 + 2
            if host.name == "saves" and phase == "end"
            else rng.randint(2, 8),
            rank={"one": rng.randrange(host.ranks), "first": 0, "all": None}[trouble.at],
            gpus=gpus,
        )
        if only in case.name and possible(case):
            found.append(case)
    return found


def runs_on(host: Host, *, gpus: int) -> bool:
    """Whether a program can train on so many GPUs, none being the CPU: a rank on each."""
    return gpus == 0 or (host.ranks == gpus and (host.on_gpu or gpus > 1))


def suits(trouble: Trouble, hosts: list[Host]) -> list[Host]:
    """The hosts that the trouble can come to."""
    return [host for host in hosts if host.ranks >= trouble.ranks and not (trouble.alone and host.ranks > 1)]


def possible(case: Case) -> bool:
    """Whether the trouble can happen there: a daemonic process may have no children, an alarm needs the main thread.

    A worker that was forked from a process that uses a GPU cannot use it.
    """
    in_worker = case.host.worker and case.phase == "data"
    forks = any(word in case.trouble.strike for word in ("multiprocessing", "signal.", "os.fork"))
    return not (in_worker and (forks or case.trouble.gpu))
