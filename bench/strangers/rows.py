"""Programs that stand in one kind of trouble, each tried three ways: ``run``, ``run --limit 60s``, ``watch`` meanwhile.

    python -m bench.strangers.rows --jobs 2 --md rows.md
    python -m bench.strangers.rows --ranked --jobs 2                two ranks on a CPU, with gloo
    python -m bench.strangers.rows --gpus 2 --jobs 1 --minutes 9    two ranks, each on a GPU, with NCCL

They are the kinds of program on which the instrument once failed: children and second interpreters, C code that keeps
the interpreter's lock, busy loops, long steps, long evaluations, locks of other programs, a PID namespace
of their own, a lock before the first word; and the faults of two ranks. None imports anything of ours.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from bench.strangers.__main__ import ended, free_port
from bench.strangers.own import end_those_in, those_in
from bench.strangers.row_programs import RANKED, ROWS, STEPS, Row

WATCHED_HUNG, WATCHED_OPEN, WATCHED_FINE = (1,), (1, 3), (0, 3)

WAYS = ("run", "limit", "watch")

WALL_S = 100.0
"""A run that takes longer is interrupted."""

ENDING_S = 30.0
"""How long one that was interrupted may take to end, in a run that has so many minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was said of one program in one way."""

    row: str
    way: str
    truth: str
    right: bool
    said: str


def command(row: Row) -> list[str]:
    """How the program is started."""
    program = [sys.executable, "train.py"]
    elastic = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    where = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={free_port()} WORLD_SIZE=2 RANK=$r LOCAL_RANK=$r"
    loop = f"for r in 0 1; do {where} {shlex.join(program)} & pids+=($!); done"
    return {
        "python": program,
        "unshare": ["unshare", "-p", "-f", "--mount-proc", *program],
        "torchrun": [sys.executable, *elastic, "train.py"],
        "bash": ["bash", "-c", f"{loop}; code=0; for p in ${{pids[@]}}; do wait $p || code=1; done; exit $code"],
    }[row.launcher]


def tried(row: Row, way: str, folder: Path, *, gpus: int, wall_s: float) -> Told:
    """Whether ``row`` is told right in this way, and what was said of it."""
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(row.text if row.ranked else STEPS + row.text)
    env = {**os.environ, "STRANGER_GPUS": str(gpus)}
    over = threading.Event()
    stopper = threading.Thread(target=stop_from_outside, args=(folder, over))
    if row.stop:
        stopper.start()
    try:
        right, said = (
            watched(row, folder, env, wall_s=wall_s) if way == "watch" else ran(row, way, folder, env, wall_s=wall_s)
        )
    finally:
        over.set()
        if row.stop:
            stopper.join()
        end_those_in(folder)
    return Told(row=row.name, way=way, truth=row.truth, right=right, said=said)


def stop_from_outside(folder: Path, over: threading.Event) -> None:
    """Stop the rank that wrote its number into ``in-trouble``, as a scheduler does."""
    while not over.wait(0.1):
        with contextlib.suppress(FileNotFoundError):
            number = int((folder / "in-trouble").read_text())
            for one in those_in(folder):
                if one.pid == number:
                    one.suspend()
            return


def ran(row: Row, way: str, folder: Path, env: dict[str, str], *, wall_s: float) -> tuple[bool, str]:
    """Under ``run``, with the row's own options or a limit of a minute."""
    harness = str(Path(sys.executable).with_name("nsa-harness"))
    options = ("--limit", "60s") if way == "limit" else row.options
    argv = [harness, "run", "--json", "--runs", "runs", *options, "--", *command(row)]
    printed = ended(argv, folder=folder, env=env, wall_s=wall_s)
    (folder / "said").write_text(printed)
    if not printed:
        return False, f"nothing was said, {wall_s:.0f} s and two Ctrl-C long"
    (trial,) = json.loads(printed)["trials"]
    kind, cause = trial["verdict"]["kind"], trial["verdict"].get("cause") or ""
    ended_at = datetime.fromisoformat(trial["started_at"]).timestamp() + trial["outcome"]["duration_s"]
    try:
        seconds = ended_at - (folder / "in-trouble").stat().st_mtime
    except FileNotFoundError:
        return False, f"{kind} {cause}, and its trouble never came"
    kinds = {"hangs": ("HANG",), "crashes": ("CRASH",), "healthy": ("PASS", "SLOW")}[row.truth]
    right = kind in (("HANG", "CRASH") if ends_by_gloo(row, env) else kinds)
    return right and (row.truth == "healthy" or seconds <= row.within_s), f"{kind} {cause} after {seconds:.1f} s"


def ends_by_gloo(row: Row, env: dict[str, str]) -> bool:
    """Whether gloo ends the program by an error of its own."""
    return row.gloo_ends_it and env["STRANGER_GPUS"] == "0"


def watched(row: Row, folder: Path, env: dict[str, str], *, wall_s: float) -> tuple[bool, str]:
    """Started by itself, and watched once it is in its trouble."""
    late_s = time.monotonic() + wall_s
    out = (folder / "out").open("w")
    program = subprocess.Popen(command(row), cwd=folder, env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        while not (folder / "in-trouble").exists():
            if program.poll() is not None or time.monotonic() > late_s:
                return False, "its trouble never came"
            time.sleep(0.1)
        time.sleep(4.0)
        if ends_by_gloo(row, env):
            return program.wait(timeout=60) != 0, "not watched: gloo ends it by an error"
        harness = str(Path(sys.executable).with_name("nsa-harness"))
        began_s = time.monotonic()
        argv = [harness, "watch", str(program.pid), "--runs", str(folder / "runs")]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        (folder / "said").write_text(done.stdout + done.stderr)
        said = f"{done.stdout.splitlines()[0][:60] if done.stdout else ''} in {time.monotonic() - began_s:.1f} s"
        if row.truth != "healthy":
            return done.returncode in (WATCHED_OPEN if row.may_be_open else WATCHED_HUNG), said
        ended_well = program.wait(timeout=120) == 0
        return done.returncode in WATCHED_FINE and ended_well, said
    finally:
        # A launcher ends its ranks, which are in sessions of their own, when it is asked to end.
        program.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def in_time(row: Row, way: str, folder: Path, *, gpus: int, wall_s: float, last_s: float) -> Told | None:
    """One cell of the table, none if it is too late to begin; the folder of what is right is removed."""
    if time.monotonic() > last_s:
        return None
    told = tried(row, way, folder, gpus=gpus, wall_s=wall_s)
    if told.right:
        shutil.rmtree(folder, ignore_errors=True)
    return told


def line(row: Row, cells: list[Told | None]) -> str:
    """A program's line of the table."""
    shown = ["not tried" if one is None else one.said if one.right else f"**WRONG** {one.said}" for one in cells]
    return f"| {row.name} | {row.truth} | {' | '.join(shown)} |"


def main() -> int:
    """Try all, or those whose name has a word of ``--only``, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.strangers.rows", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=[""], help="programs whose name has one of these words")
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
    parser.add_argument("--ranked", action="store_true", help="the programs of two ranks instead, with gloo")
    parser.add_argument("--gpus", type=int, default=0, choices=(0, 2), help="2: those, a rank on a GPU, with NCCL")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many programs at the beginning")
    parser.add_argument("--minutes", type=float, help="begin nothing that could last longer than this from now on")
    parser.add_argument("--wall", type=float, default=WALL_S, help="seconds until a run is interrupted (default: 100)")
    parser.add_argument("--md", type=Path, help="write the table here, too")
    parser.add_argument("--json", type=Path, help="write what was said here")
    parser.add_argument("--evidence", type=Path, help="keep here the folders of what was not told right")
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as in bench.strangers
    last_s = math.inf if asked.minutes is None else time.monotonic() + 60.0 * asked.minutes - asked.wall - ENDING_S
    table = [row for row in RANKED if asked.gpus or not row.gpus] if asked.ranked or asked.gpus else ROWS
    rows = [row for row in table[asked.skip :] if any(word in row.name for word in asked.only)]
    titles = [{"limit": "run --limit 60s"}.get(way, way) for way in asked.ways]
    lines = [f"| program | truth | {' | '.join(titles)} |", f"|---|---|{'---|' * len(titles)}"]
    print(*lines, sep="\n", flush=True)
    told: list[Told] = []
    with contextlib.ExitStack() as stack:
        top = (asked.evidence or Path(stack.enter_context(tempfile.TemporaryDirectory()))).resolve()
        pool = stack.enter_context(ThreadPoolExecutor(asked.jobs))
        cell = partial(in_time, gpus=asked.gpus, wall_s=asked.wall, last_s=last_s)
        running = [[pool.submit(cell, row, way, top / f"{row.name}-{way}") for way in asked.ways] for row in rows]
        for row, ways in zip(rows, running, strict=True):
            cells = [one.result() for one in ways]
            told += [one for one in cells if one is not None]
            lines.append(line(row, cells))
            print(lines[-1], flush=True)
            if asked.md:
                asked.md.write_text("\n".join(lines) + "\n")
            if asked.json:
                asked.json.write_text(json.dumps([asdict(one) for one in told], indent=1) + "\n")
    right = sum(one.right for one in told)
    print(f"{right} of {len(told)} right, {len(asked.ways) * len(rows) - len(told)} not tried")
    return 1 if right < len(told) else 0


if __name__ == "__main__":
    sys.exit(main())
