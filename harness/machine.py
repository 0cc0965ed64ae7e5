"""What code runs on what machine: facts for the report, fingerprints for the trial's key."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import harness
from harness.core.record import Machine
from harness.settings import inherited

if TYPE_CHECKING:
    from harness.core.campaign import CampaignSpec

PACKAGES = ("torch", "triton", "numpy", "py-spy", "pystack", "click", "pydantic")
"""Distributions whose versions a report names."""


def installed(name: str) -> str | None:
    """The version of a distribution, or None when it is not installed. Nothing is imported."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def describe() -> Machine:
    """This machine. No host name, no user name, no addresses."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    variables = inherited()  # hashed, since a value may name a user or a host
    return Machine(
        python=platform.python_version(),
        torch=installed("torch") or "not installed",
        platform=f"{platform.system()} {platform.machine()}",
        kernel=platform.release().partition("-")[0],  # the build's own name says where, not what
        cpu=_cpu_name(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=memory,
        gpus=_gpus(),
        packages=tuple((name, version) for name in PACKAGES if (version := installed(name))),
        environment=hashlib.sha256(json.dumps(variables).encode()).hexdigest()[:12] if variables else "",
    )


def code_fingerprint() -> str:
    """Version and content hash of the two packages as installed, with the commit when they run from a checkout."""
    digest = hashlib.sha256()
    root, patient = Path(harness.__file__).parent, find_spec("nsa")
    for package in (root, Path(patient.origin).parent if patient and patient.origin else root):
        for file in sorted(package.rglob("*.py")):
            digest.update(str(file.relative_to(package.parent)).encode())
            digest.update(file.read_bytes())
    text = f"{harness.__version__}+{digest.hexdigest()[:12]}"
    commit = _commit(root.parent)
    return f"{text} ({commit})" if commit else text


def program_of(question: CampaignSpec) -> str:
    """The commit of the program that a question runs as it is now: of the present folder, of changed files a hash too.

    Empty without one, of our trainer, and of a program out of a commit.
    """
    if not question.runs_present_program:
        return ""
    folder = Path.cwd()
    try:
        head, changes = _git(folder, "rev-parse", "--short=12", "HEAD"), _git(folder, "diff", "--no-ext-diff", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return ""
    if not changes:
        return head
    return f"{head} with uncommitted changes ({hashlib.sha256(changes.encode()).hexdigest()[:8]})"


def _commit(checkout: Path) -> str | None:
    if not (checkout / ".git").exists():
        return None
    try:
        head = _git(checkout, "rev-parse", "--short=12", "HEAD")
        dirty = _git(checkout, "status", "--porcelain", "--", "nsa", "harness")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head} with uncommitted changes" if dirty else head


def _git(folder: Path, *argv: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(folder), *argv]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=5, check=True)
    return done.stdout.strip()


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def gpu_count() -> int:
    """How many NVIDIA GPUs this machine has, without loading CUDA; 0 without a driver."""
    return max(len(_gpus()), len(list(Path("/dev").glob("nvidia[0-9]*"))))


def _gpus() -> tuple[str, ...]:
    # The driver's own files name the cards without loading CUDA into the controller.
    texts = [f.read_text(errors="replace") for f in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))]
    return tuple(
        line.partition(":")[2].strip() for text in texts for line in text.splitlines() if line.startswith("Model:")
    )
