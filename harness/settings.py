"""Settings: what the surroundings say. The harness's only reader of the environment."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

INHERITABLE = frozenset(
    {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LD_LIBRARY_PATH", "VIRTUAL_ENV"}
)
"""Variables that a trial inherits; everything else it gets is written in its command."""

PREFIXES = ("CUDA_", "NCCL_", "NVSHMEM_", "GLOO_", "TORCH_", "PYTORCH_", "TRITON_", "OMP_", "MKL_", "OPENBLAS_")
"""Families that third-party libraries read. They change what runs, so they are recorded with the trial."""

OWN_PREFIX = "NSA_HARNESS_"
"""Our own variables; any other ``NSA_*`` belongs to the patient and is read by ``nsa.env``."""

MARK = "NSA_HARNESS_RUN"
"""Carried by every process of one command's trials, so that what it leaves behind can be told from anybody else's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where runs go, which interpreter runs trials, and what a trial inherits.

    ``leases`` is where all processes of this machine meet that share its GPUs and ports, whatever their TMPDIR.
    ``whole_env`` is everything that the command was started with: what a stranger's program is given.
    """

    runs: Path
    python: str
    child_env: tuple[tuple[str, str], ...]
    patient_env: tuple[tuple[str, str], ...]
    leases: Path
    whole_env: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def read(cls, *, runs: str | None = None, environ: Mapping[str, str] | None = None) -> Settings:
        """The settings: a flag wins over the environment, the environment over the default."""
        from pathlib import Path

        env = dict(os.environ if environ is None else environ)
        if runs == "":
            from harness.core.errors import SpecError

            raise SpecError("--runs is empty; leave it out for the default, ./runs or what NSA_HARNESS_RUNS says")
        try:
            runs_dir = Path(runs or env.get("NSA_HARNESS_RUNS") or "runs").expanduser().absolute()
        except FileNotFoundError:
            from harness.core.errors import NoFolderError

            raise NoFolderError("the current folder was deleted, so nothing can be found from here") from None
        return cls(
            runs=runs_dir,
            python=sys.executable,
            child_env=tuple(sorted((k, v) for k, v in env.items() if k in INHERITABLE or k.startswith(PREFIXES))),
            patient_env=tuple(
                sorted((k, v) for k, v in env.items() if k.startswith("NSA_") and not k.startswith(OWN_PREFIX))
            ),
            leases=Path(env.get("NSA_HARNESS_LEASES") or "/tmp/nsa-harness-leases"),
            whole_env=tuple(sorted(env.items())),
        )

    def marked(self, mark: str) -> Settings:
        """These settings, with ``mark`` in the environment of every trial."""
        return replace(
            self,
            child_env=tuple(sorted({**dict(self.child_env), MARK: mark}.items())),
            whole_env=tuple(sorted({**dict(self.whole_env), MARK: mark}.items())),
        )


def inherited() -> tuple[tuple[str, str], ...]:
    """The variables of this command that every trial inherits and that change what runs, sorted by name."""
    return tuple((k, v) for k, v in surroundings() if k == "LD_LIBRARY_PATH" or k.startswith(PREFIXES))


NAMING = ("USER", "LOGNAME", "SUDO_USER", "HOSTNAME", "MASTER_ADDR", "SLURMD_NODENAME", "SLURM_JOB_USER")
"""Variables that name a person or a host."""


def surroundings() -> tuple[tuple[str, str], ...]:
    """Every variable that this command was started with."""
    return tuple(sorted(os.environ.items()))


def completion_instruction() -> str:
    """What a shell asks for that completes a command line, ``bash_source`` or ``bash_complete``; empty without."""
    return os.environ.get("_NSA_HARNESS_COMPLETE", "")


def columns_asked_for() -> int | None:
    """How wide a line may be by COLUMNS, which speaks also where there is no terminal; None where it says nothing."""
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isdecimal() and int(text) > 0 else None


def identities() -> tuple[str, ...]:
    """Names that must not reach a report: this host, this user, the home directory, and those in the environment."""
    import getpass
    import platform
    import socket
    from pathlib import Path

    names = {socket.gethostname(), platform.node(), str(Path.home())}
    for name in NAMING:
        value = os.environ.get(name, "")
        if not value.startswith("127."):
            names.add(value)
    try:
        names.add(getpass.getuser())
    except (KeyError, OSError):  # a container without a passwd entry has no user name to leak
        names.discard("")
    return tuple(sorted(names - {"", "root", "/", "localhost"}))


def processes_with(name: str) -> tuple[tuple[int, str], ...]:
    """Every process we may look at that carries the variable ``name``: (PID, its value)."""
    from pathlib import Path

    carriers: list[tuple[int, str]] = []
    prefix = f"{name}=".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        entries: list[bytes] = []
        # Another user's process, or one that just ended, is not ours.
        with suppress(PermissionError, FileNotFoundError, ProcessLookupError):
            entries = environ.read_bytes().split(b"\0")
        for entry in entries:
            if entry.startswith(prefix):
                value = entry.removeprefix(prefix).decode()
                carriers.append((int(environ.parent.name), value))
    return tuple(carriers)
