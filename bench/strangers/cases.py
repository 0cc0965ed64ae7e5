"""Cases drawn from a seed: which host, started how, with what at which step and phase of which rank."""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.strangers.hosts import HOSTS, PRELUDE, STEPS
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
    """One program with one trouble; ``number`` and ``seed`` draw the same one again."""

    seed: int
    number: int
    host: Host
    trouble: Trouble
    launcher: str
    phase: str
    step: int
    rank: int

    @property
    def name(self) -> str:
        """``ddp+lock-twice``."""
        return f"{self.host.name}+{self.trouble.name}"

    def __str__(self) -> str:
        where = f"{self.phase} of step {self.step}" + (f", rank {self.rank}" if self.host.ranks > 1 else "")
        return f"{self.seed}:{self.number} {self.name} ({self.launcher}; {where})"

    @property
    def source(self) -> str:
        """The program's text."""
        body = "\n".join(f"    {line}" for line in self.trouble.strike.strip().splitlines())
        values = {
            "@PHASE@": repr(self.phase),
            "@STEP@": str(self.step),
            "@RANKS@": repr((self.rank,)),
            "@STRIKE@": f"def strike():\n{body}",
        }
        text = PRELUDE
        for name, value in values.items():
            text = text.replace(name, value)
        return text + self.host.text.replace("@STEPS@", str(STEPS))

    def command(self, python: str, *, port: int) -> str:
        """How the program is started, as a line for ``bash -c``; a torchrun without the script ``torchrun`` on PATH."""
        ranks = self.host.ranks
        each = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={port} {python} train.py"
        accelerate = "accelerate.commands.launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no"
        elastic = f"torch.distributed.run --nproc-per-node {ranks} --master-port {port}"
        loop = f"for r in {' '.join(map(str, range(ranks)))}; do {{}} {each} & pids+=($!); done"
        wait = "code=0; for p in ${pids[@]}; do wait $p || code=1; done; exit $code"
        return {
            "python": f"MASTER_PORT={port} exec {python} train.py",
            "bash": f"echo starting; {python} train.py; exit $?",
            "torchrun": f"exec {python} -m {elastic} train.py",
            "accelerate": f"exec {python} -m {accelerate} --dynamo_backend no train.py",
            "srun": f"{loop.format(f'SLURM_PROCID=$r SLURM_NTASKS={ranks}')}; {wait}",
            "bash-ranks": f"{loop.format(f'RANK=$r WORLD_SIZE={ranks} LOCAL_RANK=$r')}; {wait}",
        }[self.launcher]


def packages(python: str) -> frozenset[str]:
    """Which of the packages that hosts need the interpreter ``python`` has."""
    wanted = sorted({name for host in HOSTS.values() for name in host.needs})
    code = "import importlib.util as u, sys; print(*[n for n in sys.argv[1:] if u.find_spec(n)])"
    return frozenset(
        subprocess.run([python, "-c", code, *wanted], capture_output=True, text=True, check=True).stdout.split()
    )


def draw(
    seed: int, count: int, *, only: str = "", has: frozenset[str] = frozenset(), device: str = "cpu"
) -> list[Case]:
    """``count`` cases of a seed; ``only`` keeps those whose name has it.

    Hosts that need other packages than those that the interpreter ``has`` are left out. On a GPU only programs of one
    process are drawn, every second time with a trouble of GPUs.
    """
    rng = random.Random(seed)
    hosts = [host for host in HOSTS.values() if has.issuperset(host.needs) and (device == "cpu" or host.on_gpu)]
    found: list[Case] = []
    number = 0
    while len(found) < count and number < 1000 * max(count, 1):
        number += 1
        (kind,) = rng.choices([k for k, _ in KINDS], [weight for _, weight in KINDS])
        fit = [t for t in TROUBLES.values() if t.expect == kind and (device != "cpu" or not t.gpu)]
        fit = [t for t in fit if t.ranks == 1] if device != "cpu" else fit
        of_gpus = [t for t in fit if t.gpu]
        trouble = rng.choice(of_gpus if of_gpus and rng.random() < 0.5 else fit)
        host = rng.choice([h for h in hosts if h.ranks >= trouble.ranks and not (trouble.alone and h.ranks > 1)])
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
            rank=rng.randrange(host.ranks),
        )
        if only in case.name and possible(case):
            found.append(case)
    return found


def possible(case: Case) -> bool:
    """Whether the trouble can happen there: a daemonic process may have no children, an alarm needs the main thread."""
    in_worker = case.host.worker and case.phase == "data"
    forks = any(word in case.trouble.strike for word in ("multiprocessing", "signal.", "os.fork"))
    return not (in_worker and forks)
