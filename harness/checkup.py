"""What can spoil a trial on this machine, looked at one by one. Used by ``doctor``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.ports import WatchedJob
from harness.launch.leftovers import orphans
from harness.machine import describe, installed
from harness.observe.devices.nvml import Nvml
from harness.observe.stacks.dumper import find_tool
from harness.settings import processes_with
from harness.trainer import INSTALL

if TYPE_CHECKING:
    from harness.settings import Settings

MOST_LISTED = 6
"""PIDs that are named one by one."""

YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing looked at; ``level`` is ok, warn (verdicts get weaker) or fail (do not trust verdicts here)."""

    name: str
    level: str
    seen: str
    next: str = ""


def examine(settings: Settings) -> tuple[CheckResult, ...]:
    """All findings for this machine, in the order in which they would hurt. Takes about a second."""
    return (
        _machine(),
        _distributions(),
        _torch(),
        _bytecode(),
        _stacks(),
        _native(),
        _gpus(),
        _runs(settings.runs),
        _leftovers(),
        _shared_memory(),
    )


def _machine() -> CheckResult:
    here = describe()
    gpus = ", ".join(here.gpus) or "no GPU"
    text = f"{here.cores} cores, {here.memory_bytes / 2**30:.0f} GiB, {gpus}, Python {here.python}, Linux {here.kernel}"
    return CheckResult("machine", "ok", text)


def _distributions() -> CheckResult:
    if installed("nsa-harness") is None:
        text = "nsa-harness is not installed; its packages come from the current directory or PYTHONPATH"
        return CheckResult("packages", "warn", text, "pip install nsa-harness into a clean environment")
    providers = packages_distributions()  # an editable installation is not in this table
    ours = {"nsa-harness", "nsa-harness-trainer"}
    twice: list[str] = []
    for package in ("nsa", "harness"):
        others = set(providers.get(package, ())) - ours
        if others:
            twice.append(f"{package} also comes from {', '.join(sorted(others))}")
    if twice:
        text = "; ".join(twice)
        return CheckResult("packages", "warn", text, "uninstall the other distribution, or use a clean environment")
    trainer = installed("nsa-harness-trainer")
    with_trainer = f", with nsa-harness-trainer {trainer}" if trainer else ", without the trainer nsa"
    return CheckResult("packages", "ok", f"nsa-harness {installed('nsa-harness')}{with_trainer}")


def _torch() -> CheckResult:
    version = installed("torch")
    if version is not None:
        return CheckResult("torch", "ok", version)
    if find_spec("nsa") is None:
        return CheckResult("torch", "ok", "not installed; only the trainer nsa needs it here")
    return CheckResult("torch", "fail", "not installed", f"the trainer nsa needs it: {INSTALL}")


def _bytecode() -> CheckResult:
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return CheckResult("bytecode", "ok", "no torch here")
    folder = Path(spec.origin).parent
    if not list((folder / "__pycache__").glob(f"__init__.{sys.implementation.cache_tag}*.pyc")):
        return CheckResult(
            "bytecode",
            "warn",
            "torch has no bytecode: every start parses it again (about twice the CPU)",
            f"python -m compileall -q {folder}",
        )
    return CheckResult("bytecode", "ok", "torch is compiled to bytecode")


def _stacks() -> CheckResult:
    program = find_tool("py-spy")
    if program is None:
        return CheckResult("py-spy", "warn", "not found; faulthandler will stand in", "pip install py-spy")
    child = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        if child.stdout is not None:
            child.stdout.readline()
        tried = subprocess.run(
            [program, "dump", "--nonblocking", "--pid", str(child.pid)],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
        child.kill()
    if tried.returncode == 0 and "<module>" in tried.stdout:
        return CheckResult("py-spy", "ok", "reads the stack of a child")
    scope = YAMA.read_text().strip() if YAMA.exists() else "no Yama"
    return CheckResult(
        "py-spy",
        "warn",
        f"cannot read a child's stack (ptrace_scope: {scope}): {tried.stderr.strip().splitlines()[-1:]}",
        "run as the same user with ptrace_scope 0 or 1, or add --cap-add SYS_PTRACE to the container",
    )


def _native() -> CheckResult:
    version = installed("pystack")
    if version is None or find_tool("pystack") is None:
        return CheckResult("pystack", "ok", "not installed; py-spy gives native frames too, in three times the time")
    return CheckResult("pystack", "ok", version)


def _gpus() -> CheckResult:
    """What NVML tells here, and who else is on the GPUs: a PID that is not visible here cannot be ours either."""
    sample = Nvml().see(WatchedJob(ranks={}, pids=frozenset(), world=1, trial_dir=Path(), t_s=0.0))
    reasons = [failure.reason for failure in sample.failures]
    if not sample.gpus:
        reason = "; ".join(reasons)
        if not reason:
            return CheckResult("gpus", "ok", "no NVIDIA driver")
        return CheckResult(
            "gpus", "warn", f"not seen: {reason}", "without it nobody can tell whether a GPU works or waits"
        )
    lines: list[str] = []
    others: list[str] = []
    for gpu in sample.gpus:
        used, whole = (gpu.memory_used_bytes or 0) / 2**20, (gpu.memory_total_bytes or 0) / 2**20
        lines.append(f"{gpu.index}: {gpu.name}, {used:.0f} of {whole:.0f} MiB used, {gpu.utilisation} %")
        others += [f"GPU {gpu.index}: PID {process.pid}" for process in gpu.processes]
    lines += reasons
    if others:
        return CheckResult(
            "gpus",
            "warn",
            "; ".join([*lines, f"in use by {', '.join(others)}"]),
            "a trial that shares its GPU cannot be judged for memory or speed; wait, or choose another GPU",
        )
    return CheckResult("gpus", "ok", "; ".join(lines))


def _runs(runs: Path) -> CheckResult:
    place = runs
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if not os.access(place, os.W_OK):
        return CheckResult("runs", "fail", f"{runs} cannot be written", "choose another place: --runs DIR")
    if free < 200_000_000:
        return CheckResult(
            "runs",
            "warn",
            f"{free / 1e6:.0f} MB free at {place}; a trial can take 5 MB",
            "free some space or choose another place with --runs DIR",
        )
    return CheckResult("runs", "ok", f"{runs} ({free / 1e9:.0f} GB free)")


def _leftovers() -> CheckResult:
    processes = processes_with("NSA_HARNESS_TRIAL")
    if not processes:
        return CheckResult("leftovers", "ok", "no process of an earlier trial")
    numbers, tokens = zip(*processes, strict=True)
    pids = ", ".join(map(str, numbers[:MOST_LISTED])) + (", ..." if len(numbers) > MOST_LISTED else "")
    trials = len(set(tokens))
    return CheckResult(
        "leftovers",
        "warn",
        f"{len(processes)} processes of {trials} earlier or running trials: PID {pids}",
        "if no other nsa-harness is running, look at them and end them by PID",
    )


def _shared_memory() -> CheckResult:
    segments = orphans()
    if not segments:
        return CheckResult("memory", "ok", "no shared tensors of processes that are gone")
    used = sum(map(_size, segments))
    return CheckResult(
        "memory",
        "warn",
        f"{len(segments)} shared tensors of processes that are gone hold {used / 1e6:.1f} MB, e.g. {segments[0]}",
        "their processes are gone, so nothing can use them: rm them",
    )


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:  # somebody removed it meanwhile, or it is another user's
        return 0
