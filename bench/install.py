"""Installs the instrument alone into clean virtual environments, and uses it there beside a stranger's own packages.

    python bench/install.py --python python3.11 --python python3.12 --zipapp --md install.md

For each interpreter: seconds of ``pip install`` by the clock and of CPU time (its cache may be warm; on a machine that
does other work the CPU time is what a quiet one would take and more), what it adds in MB, with and without
bytecode, ``pip check``; then ``run``, ``watch``, ``stacks``, ``bisect -- COMMAND``, ``matrix run`` and ``report``,
typed in a folder that has a package ``harness`` and a folder ``nsa`` of its own, with PYTHONPATH=. With ``--zipapp``
the same of one file made by shiv, run by the bare interpreter. Exits with 1 when anything of it is not as it should be.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]

TRAIN = """\
import os, sys, threading, time
import harness.own, nsa.own  # the stranger's own packages

def wait_here():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

for step in range(3):
    print(f"step {step}", flush=True)
    time.sleep(0.1)
if int(sys.argv[1] if sys.argv[1:] else os.environ["N"]) >= 3:
    wait_here()
"""
MATRIX = """\
version: 1
name: two
target: command
command: [PYTHON, train.py]
axes:
  n: {type: ordered, values: [1, 2], apply: {env: N}}
strategy: full
"""


@dataclass(frozen=True)
class Row:
    """What one installation showed."""

    name: str
    seconds: float
    cpu_s: float
    megabytes: float
    without_bytecode: float
    wrong: tuple[str, ...]


def main() -> int:
    """Install, use, and print one table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--python", action="append", default=[], help="An interpreter; may be repeated.")
    options.add_argument("--zipapp", action="store_true", help="Try the single file too; needs shiv.")
    options.add_argument("--md", type=Path, help="Write the table there.")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="nsa-install-") as name:
        place = Path(name)
        wheel = build(place / "wheel")
        pythons = given.python or [sys.executable]
        rows = [installed(python, wheel, place / f"env{i}") for i, python in enumerate(pythons)]
        if given.zipapp:
            rows.append(zipped(pythons[0], wheel, place / "zipapp"))
    text = table(rows)
    print(text)
    if given.md:
        given.md.write_text(text + "\n")
    return 1 if any(row.wrong for row in rows) else 0


def build(out: Path) -> Path:
    """The instrument's wheel."""
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT)], check=True, stdout=-3)
    return next(out.glob("*.whl"))


def installed(python: str, wheel: Path, env: Path) -> Row:
    """One clean environment: made, measured and used."""
    subprocess.run([python, "-m", "venv", str(env)], check=True)
    before = sizes(env)
    began, used_s = time.monotonic(), cpu_s()
    pip = [str(env / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "-c", str(ROOT / "constraints.txt"), str(wheel)], check=True, stderr=-3)
    seconds, used_s = time.monotonic() - began, cpu_s() - used_s
    after = sizes(env)
    wrong = [] if subprocess.run([*pip, "check"], check=False, stdout=-3).returncode == 0 else ["pip check"]
    wrong += used([str(env / "bin/nsa-harness")], str(env / "bin/python"), env.parent / f"{env.name}-project")
    version = subprocess.run([python, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    row = Row(version, seconds, used_s, after[0] - before[0], after[1] - before[1], tuple(wrong))
    print(row, file=sys.stderr)
    return row


def zipped(python: str, wheel: Path, place: Path) -> Row:
    """One file, with which nothing need be installed: made, measured and used."""
    place.mkdir()
    file = place / "nsa-harness.pyz"
    began, used_s = time.monotonic(), cpu_s()
    make = [sys.executable, "-m", "shiv", "-q", "-c", "nsa-harness", "-o", str(file), str(wheel)]
    subprocess.run(make, check=True, stdout=-3, stderr=-3)
    seconds, used_s = time.monotonic() - began, cpu_s() - used_s
    os.environ["SHIV_ROOT"] = str(place / "unpacked")
    bare = subprocess.run(
        [python, "-c", "import sys; print(sys._base_executable)"], check=True, capture_output=True, text=True
    ).stdout.strip()
    wrong = used([bare, str(file)], bare, place / "project")
    return Row("zipapp", seconds, used_s, file.stat().st_size / 1e6, file.stat().st_size / 1e6, tuple(wrong))


def cpu_s() -> float:
    """CPU seconds of all processes that this one has started and waited for."""
    used = os.times()
    return used.children_user + used.children_system


def sizes(folder: Path) -> tuple[float, float]:
    """MB of the files below ``folder``: all, and all but bytecode."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    total = sum(path.stat().st_size for path in files)
    bytecode = sum(path.stat().st_size for path in files if path.suffix == ".pyc")
    return total / 1e6, (total - bytecode) / 1e6


def used(command: list[str], python: str, project: Path) -> list[str]:
    """The commands that did not do what they should, each with what it said last."""
    for package in ("harness", "nsa"):
        (project / package).mkdir(parents=True)
        (project / package / "own.py").write_text("")
    (project / "harness/__init__.py").write_text("")
    (project / "train.py").write_text(TRAIN)
    (project / "two.yaml").write_text(MATRIX.replace("PYTHON", python))
    # Nothing of this process's environment helps: py-spy and all else come from what was installed.
    environ = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONHOME")}
    environ |= {"PYTHONPATH": ".", "PATH": "/usr/local/bin:/usr/bin:/bin"}

    def ask(*argv: str) -> tuple[int, str]:
        done = subprocess.run(
            [*command, *argv], cwd=project, env=environ, capture_output=True, text=True, timeout=300, check=False
        )
        return done.returncode, done.stdout + done.stderr

    hung = subprocess.Popen([python, "train.py", "3"], cwd=project, env=environ, stdout=-3)
    try:
        checks: dict[str, tuple[tuple[str, ...], Callable[[int, str], bool]]] = {
            "run, healthy": (("run", "--", python, "train.py", "1"), lambda code, said: code == 0 and "PASS" in said),
            "run, hung": (
                ("run", "--", python, "train.py", "3"),
                lambda code, said: code == 1 and "HANG" in said and "wait_here" in said,
            ),
            "watch": (("watch", str(hung.pid)), lambda code, said: code == 1 and "wait_here" in said),
            "stacks": (("stacks", str(hung.pid)), lambda _, said: "wait_here" in said),
            "bisect": (
                ("bisect", "--axis", "n=1..4", "--certify", "3", "--", python, "train.py", "{n}"),
                lambda _, said: "n=3 hangs" in said,
            ),
            "matrix": (("matrix", "run", "two.yaml"), lambda code, _: code == 0),
            "report": (("report", "--format", "short"), lambda code, said: code == 0 and bool(said.strip())),
            "the trainer": (("bisect", "--axis", "n_layers"), lambda code, said: code == 2 and "pip install" in said),
        }
        wrong: list[str] = []
        for name, (argv, is_right) in checks.items():
            code, said = ask(*argv)
            print(f"  {name}: {'right' if is_right(code, said) else 'WRONG'}", file=sys.stderr)
            if not is_right(code, said):
                wrong.append(f"{name} (status {code}): {' '.join(said.split())[-300:]}")
        return wrong
    finally:
        hung.kill()
        hung.wait()


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    head = "| | installed in | CPU | adds | without bytecode | commands |\n|---|--:|--:|--:|--:|---|"
    lines = [
        f"| {row.name} | {row.seconds:.0f} s | {row.cpu_s:.0f} s | {row.megabytes:.0f} MB "
        f"| {row.without_bytecode:.0f} MB | {'; '.join(row.wrong) or 'all right'} |"
        for row in rows
    ]
    return "\n".join([head, *lines])


if __name__ == "__main__":
    sys.exit(main())
