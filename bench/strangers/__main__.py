"""python -m bench.strangers: the instrument on programs that it has never seen, with default options only."""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench.strangers.cases import FIRST_OF_RELEASE, Case, draw, packages
from bench.strangers.own import end_those_in

if TYPE_CHECKING:
    from collections.abc import Iterator

WALL_S = 150.0
"""A case that takes longer is undecided: it is interrupted as a user would."""

ENDING_S = 20.0
"""How long a case that was interrupted may take to end, in a run that has so many minutes."""

SHARED_BY = 2
"""Cases that share the cards of one job."""

LATE_S = 60.0
"""A hang that is told later than this was told late."""

ALONE = 2
"""Runs without the instrument of a program that ended below it as is not said of it; if none does, that counts.

Few: gloo's abort at the end of a program is seen in 1 of 22 such runs, and each crash is to be looked into in any case.
"""

EXAMPLES = """examples:
  python -m bench.strangers --cases 20 --seed 7 --jobs 2
  python -m bench.strangers --cases 300 --seed 1000 --jobs 2 --json result.json
  python -m bench.strangers --seed 7 --only flock --keep kept
  python -m bench.strangers --cases 20 --seed 7 --plain      the programs alone: do they do what is said of them?
  python -m bench.strangers --cases 300 --seed 1000 --jobs 24 --lanes 8      sixteen cores: in a tenth of the time
  python -m bench.strangers --cases 60 --seed 7 --gpus 2 --jobs 3 --minutes 9 --evidence evidence
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was said of one case. ``told_s`` are seconds from the fault to the verdict; ``score`` as on the card."""

    case: Case
    kind: str
    cause: str
    score: str
    told_s: float | None
    because: str


def main() -> int:
    """Draw the cases, run them, print the card."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.strangers", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--cases", type=int, default=20, help="how many (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help=f"below {FIRST_OF_RELEASE}: development (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="at a time (default: 2)")
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--kind", choices=("HANG", "CRASH", "PASS"), help="only troubles of which this is true")
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="the programs' interpreter (default: this one); those that need what it lacks are left out",
    )
    parser.add_argument(
        "--gpus",
        type=int,
        default=0,
        choices=(0, 1, 2),
        help="0: every program, on the CPU with gloo (default); 1: those of one process, on a GPU; 2: those of two "
        "ranks, each on a GPU with NCCL",
    )
    parser.add_argument(
        "--cards",
        type=int,
        default=0,
        help="GPUs of this machine: two cases share as many as one needs, and a kernel without end has its own "
        "(default: all share them all)",
    )
    parser.add_argument(
        "--lanes",
        type=int,
        default=0,
        help="spread the jobs over so many pairs of this machine's cores: each lane is a machine of two cores "
        "(default: all share all cores)",
    )
    parser.add_argument(
        "--wall", type=float, default=WALL_S, help="seconds after which a case is interrupted (default: 150)"
    )
    parser.add_argument("--minutes", type=float, help="begin no case that could last longer than this from now on")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--keep", type=Path, help="keep every case's folder here")
    kept.add_argument("--evidence", type=Path, help="keep here the folders of the cases that were not right")
    parser.add_argument("--json", type=Path, help="write all results here")
    parser.add_argument("--list", action="store_true", help="say what would run")
    parser.add_argument(
        "--suspend",
        action="store_true",
        help="stop each case with its instrument once, for 3 to 20 s, as a laptop does",
    )
    parser.add_argument("--plain", action="store_true", help="run the programs alone, a minute each")
    asked = parser.parse_args()
    # A shell lets what it starts with & ignore Ctrl-C, and so would all that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    last_s = math.inf if asked.minutes is None else time.monotonic() + 60.0 * asked.minutes - asked.wall - ENDING_S
    cases = draw(asked.seed, asked.cases, only=asked.only, has=packages(asked.python), gpus=asked.gpus)
    cases = [case for case in cases if asked.kind in (None, case.trouble.expect)]
    if asked.list:
        print(*cases, sep="\n")
        return 0
    with contextlib.ExitStack() as stack:
        folder = asked.keep or asked.evidence or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        results = run_all(
            cases, folder=folder.resolve(), python=asked.python, jobs=asked.jobs, keep=asked.json, plain=asked.plain,
            wall_s=asked.wall, suspend=asked.suspend, last_s=last_s, only_evidence=asked.evidence is not None,
            cards=asked.cards, lanes=asked.lanes,
        )  # fmt: skip
    if len(results) < len(cases):
        print(f"{len(results)} of {len(cases)} cases drawn were run")
    print(card(results, seed=asked.seed))
    return 1 if any(result.score == "wrong" for result in results) else 0


def run_all(
    cases: list[Case],
    *,
    folder: Path,
    python: str,
    jobs: int,
    keep: Path | None,
    wall_s: float = WALL_S,
    plain: bool = False,
    suspend: bool = False,
    last_s: float = math.inf,
    only_evidence: bool = False,
    cards: int = 0,
    lanes: int = 0,
) -> list[Result]:
    """Every case, ``jobs`` at a time, each in a folder of its own below ``folder``.

    After each, all results so far are written to ``keep``; Ctrl-C ends what runs and gives what there is. After
    ``last_s``, by the monotonic clock, no case begins; of those the result is missing. With ``only_evidence`` the
    folders of right cases are removed. Of so many ``cards`` no more than two cases share one. The cases of each of so
    many ``lanes`` share two cores of their own, whatever else runs on the others.
    """
    results: list[Result] = []
    machine = Cards(cards, each=max(case.gpus for case in cases)) if cards else None
    run = run_plain if plain else partial(run_case, wall_s=wall_s, suspend=suspend)
    pairs = pairs_of_cores(lanes)

    def in_time(case: Case) -> Result | None:
        if time.monotonic() > last_s:
            return None
        own = folder / f"{case.seed}-{case.number}"
        if machine is None:
            result = run(case, own, python)
        else:
            with machine.taken(alone=case.trouble.gpu) as visible:
                result = run(case, own, python, visible=visible)
        if only_evidence and result.score == "right":
            shutil.rmtree(own, ignore_errors=True)
        return result

    def stay() -> None:
        """What this thread starts runs on the next lane's two cores."""
        if pairs:
            os.sched_setaffinity(0, pairs[next(turns) % len(pairs)])

    turns = itertools.count()
    with ThreadPoolExecutor(jobs, initializer=stay) as pool:
        running = [pool.submit(in_time, case) for case in cases]
        try:
            for number, one in enumerate(running, 1):
                result = one.result()
                if result is None:
                    continue
                results.append(result)
                told = f"{result.told_s:5.1f} s" if result.told_s is not None else "       "
                if keep:
                    text = json.dumps([as_json(one) for one in results], indent=1) + "\n"
                    keep.write_text(text.replace(python, "python"))  # results name no place of the machine
                print(f"[{number}/{len(cases)}] {result.score:9} {result.kind:10} {told}  {result.case}", flush=True)
                if result.score not in ("right", "void"):
                    print(f"      {result.cause}: {result.because[:300]}", flush=True)
        except KeyboardInterrupt:
            print("interrupted: what runs is ended first", flush=True)
            for one in running:
                one.cancel()
    return results


def pairs_of_cores(lanes: int) -> list[set[int]]:
    """The cores of so many lanes, two each; exits if this machine has fewer."""
    cores = sorted(os.sched_getaffinity(0))
    if 2 * lanes > len(cores):
        sys.exit(f"{lanes} lanes need {2 * lanes} cores; there are {len(cores)}")
    return [set(cores[2 * lane : 2 * lane + 2]) for lane in range(lanes)]


class Cards:
    """The GPUs of a machine in sets of ``each``, as many as a job needs. Two cases share a set.

    What is told by a card's figures alone has a set for itself: those of a card that others use convict nobody.
    """

    def __init__(self, cards: int, *, each: int) -> None:
        firsts = range(0, cards - each + 1, each)
        self._free = {",".join(str(first + card) for card in range(each)): SHARED_BY for first in firsts}
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def taken(self, *, alone: bool) -> Iterator[str]:
        """The cards of a case, in the words of CUDA_VISIBLE_DEVICES; waits until there are some."""
        places = SHARED_BY if alone else 1
        with self._changed:
            self._changed.wait_for(lambda: max(self._free.values()) >= places)
            mine = max(self._free, key=lambda cards: self._free[cards])
            self._free[mine] -= places
        try:
            yield mine
        finally:
            with self._changed:
                self._free[mine] += places
                self._changed.notify_all()


def run_case(
    case: Case, folder: Path, python: str, *, wall_s: float = WALL_S, suspend: bool = False, visible: str = ""
) -> Result:
    """One case under ``nsa-harness run`` with default options; with ``suspend`` all of it is stopped for a while."""
    env = prepare(case, folder, visible=visible)
    line = case.command(python, port=free_port())
    harness = str(Path(sys.executable).with_name("nsa-harness"))
    argv = [harness, "run", "--runs", str(folder / "runs"), "--json", "--", "bash", "-c", line]
    moments = random.Random(f"{case.seed}:{case.number}:suspended")
    sleeps_s = (moments.uniform(0.5, 12.0), moments.uniform(3.0, 20.0)) if suspend else None
    done = ended(argv, folder=folder, env=env, wall_s=wall_s, sleeps_s=sleeps_s)
    (folder / "said.json").write_text(done)
    end_those_in(folder)
    try:
        said = json.loads(done)
        row = said["trials"][0]
    except (json.JSONDecodeError, KeyError, IndexError):
        score = "void" if stamps(case, folder)[0] is None else "undecided"
        return Result(case=case, kind="NONE", cause="", score=score, told_s=None, because=done[-300:])
    verdict, outcome = row["verdict"], row["outcome"]
    kind, cause = verdict["kind"], verdict.get("cause") or ""
    started_at = datetime.fromisoformat(row["started_at"]).timestamp()
    ended_at = started_at + outcome["duration_s"]
    signals = outcome["cleanup"]["signals"]
    # What ends a wait is often the signal by which the trial is ended: only what was over before that counts.
    began_s, over = stamps(case, folder, until_s=started_at + signals[0][0] if signals else math.inf)
    told_s = ended_at - began_s if began_s is not None else None
    score = scored(case, kind, told_s, began=began_s is not None, over=over)
    if case.trouble.wordless and case.hangs_without_it and (cause, verdict["rank"]) == ("rank-gone", case.rank):
        score = "right"
    if case.trouble.expect == "PASS" and kind == "CRASH" and outcome["ending"] != "stopped by us":
        score = "void" if ends_alone(case, "CRASH", folder, python, visible=visible) else "wrong"
    names_it = names_strike(case, f"{said['place']} {verdict['because']}")
    if case.trouble.expect == "CRASH" and kind == "HANG" and began_s is not None and names_it:
        score = "right" if ends_alone(case, "HANG", folder, python, visible=visible) else "wrong"
    return Result(case=case, kind=kind, cause=cause, score=score, told_s=told_s, because=verdict["because"])


def ends_alone(case: Case, kind: str, folder: Path, python: str, *, visible: str) -> bool:
    """Whether a program ends in ``kind`` without the instrument, too.

    A healthy one crashes at times by a fork beside gloo's threads; one that raised may wait at its exit for a child.
    """
    for number in range(ALONE):
        if run_plain(case, folder / f"alone-{number}", python, visible=visible).kind == kind:
            return True
    return False


def names_strike(case: Case, said: str) -> bool:
    """Whether ``said`` names a line of the trouble itself."""
    lines = case.source.splitlines()
    first = lines.index("def strike():") + 2
    last = first + len(case.trouble.strike.strip().splitlines())
    return any(f"train.py:{number})" in said for number in range(first, last))


def scored(case: Case, kind: str, told_s: float | None, *, began: bool, over: bool) -> str:
    """``right``, ``late``, ``undecided``, ``wrong``, or ``void`` where the trouble never came, or did not bite."""
    expect = case.trouble.expect
    if not began or (expect == "HANG" and over):
        return "wrong" if kind == "HANG" and not began else "void"
    if kind == "UNRESOLVED":
        return "undecided"
    if expect == "PASS":
        return "right" if kind in ("PASS", "SLOW") else "wrong"
    if expect == "CRASH" or case.trouble.may_crash:
        return "right" if kind in ("CRASH", "OOM") or (kind == "HANG" and case.trouble.may_crash) else "wrong"
    if kind != "HANG":
        return "wrong"
    return "late" if told_s is not None and told_s > LATE_S else "right"


def run_plain(case: Case, folder: Path, python: str, *, visible: str = "") -> Result:
    """One case without the instrument: right if it ends as is said of it, or is still silent after a minute."""
    env = prepare(case, folder, visible=visible)
    with (folder / "printed").open("w") as printed:
        done = subprocess.Popen(
            ["bash", "-c", case.command(python, port=free_port())], cwd=folder, env=env, start_new_session=True,
            stdout=printed, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        code = done.wait(60.0)
        kind = "PASS" if code == 0 else "CRASH"
    except subprocess.TimeoutExpired:
        kind = "HANG"
        os.killpg(done.pid, signal.SIGKILL)
        done.wait()
    end_those_in(folder)
    began_s, over = stamps(case, folder)
    score = scored(case, kind, None, began=began_s is not None, over=over)
    return Result(
        case=case, kind=kind, cause="", score=score, told_s=None, because=(folder / "printed").read_text()[-300:]
    )


def prepare(case: Case, folder: Path, *, visible: str = "") -> dict[str, str]:
    """The program in its folder, and its environment: a file for its stamps, which GPUs are ``visible``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stamps").unlink(missing_ok=True)
    (folder / "train.py").write_text(case.source)
    if case.launch:
        (folder / "launch.py").write_text(case.launch)
    own = {"STRANGER_STAMPS": str(folder / "stamps"), "STRANGER_GPUS": str(case.gpus), "OMP_NUM_THREADS": "1"}
    if visible:
        own["CUDA_VISIBLE_DEVICES"] = visible
    return {**os.environ, **own}


def ended(
    argv: list[str], *, folder: Path, env: dict[str, str], wall_s: float, sleeps_s: tuple[float, float] | None = None
) -> str:
    """What a command printed; after ``wall_s`` it is interrupted, and killed if that does not end it.

    ``sleeps_s``: after how long it is stopped with all that it started, and for how long.
    """
    with (folder / "stderr").open("w") as errors:
        process = subprocess.Popen(argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=errors, text=True)
        if sleeps_s is not None:
            put_to_sleep(process, after_s=sleeps_s[0], for_s=sleeps_s[1])
        for patience_s, number in ((wall_s, signal.SIGINT), (20.0, signal.SIGINT), (20.0, signal.SIGKILL), (9.0, 0)):
            try:
                return process.communicate(timeout=patience_s)[0]
            except subprocess.TimeoutExpired:
                process.send_signal(number)
    return ""


def put_to_sleep(process: subprocess.Popen[str], *, after_s: float, for_s: float) -> None:
    """Stop ``process`` and every descendant of it, and let them go on."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(after_s)
        return
    tree = psutil.Process(process.pid)
    stopped = [tree]
    with contextlib.suppress(psutil.NoSuchProcess):
        tree.suspend()  # from the root on: who is stopped starts nobody
        for _ in range(3):
            for one in set(tree.children(recursive=True)) - set(stopped):
                stopped.append(one)
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.suspend()
    time.sleep(for_s)
    for one in reversed(stopped):
        with contextlib.suppress(psutil.NoSuchProcess):
            one.resume()


def stamps(case: Case, folder: Path, *, until_s: float = math.inf) -> tuple[float | None, bool]:
    """When the trouble began (None: it never did), and whether it was over by then in every rank that it came to."""
    try:
        rows = [line.rsplit(" ", 2) for line in (folder / "stamps").read_text().splitlines()]
    except FileNotFoundError:
        return None, False
    began = [float(row[1]) for row in rows if row[0] == "begins"]
    over = [row for row in rows if row[0] == "is over" and float(row[1]) < until_s]
    return min(began, default=None), len(over) >= len(case.struck)


def free_port() -> int:
    """A port for a rendezvous; drawn, because two cases that ask the kernel at once may get the same.

    Below those that Linux gives to whoever connects.
    """
    return random.randrange(20000, 32000)


def card(results: list[Result], *, seed: int) -> str:
    """The score card and the table of what was said of what."""
    counted = [result for result in results if result.score != "void"]
    scores = collections.Counter(result.score for result in counted)
    hangs = sorted(r.told_s for r in counted if r.case.trouble.expect == "HANG" and r.kind == "HANG" and r.told_s)
    false = [result for result in counted if result.case.trouble.expect == "PASS" and result.kind == "HANG"]
    use = "development" if seed < FIRST_OF_RELEASE else "release"
    total = max(len(counted), 1)
    lines = [f"{len(counted)} cases of seed {seed} ({use}), {len(results) - len(counted)} void"]
    names = ("right", "late", "undecided", "wrong")
    lines += [f"  {name:10} {scores[name]:4}  {100 * scores[name] / total:5.1f} %" for name in names]
    lines.append(f"  healthy called HANG: {len(false)} of {sum(r.case.trouble.expect == 'PASS' for r in counted)}")
    if hangs:
        worst = hangs[min(int(0.95 * len(hangs)), len(hangs) - 1)]
        lines.append(
            f"  fault to HANG: median {statistics.median(hangs):.1f} s, 95 % {worst:.1f} s, longest {hangs[-1]:.1f} s"
        )
    table = collections.Counter((result.case.trouble.expect, result.kind) for result in counted)
    kinds = sorted({kind for _, kind in table})
    lines.append("  " + "".join(f"{name:>12}" for name in ("true \\ told", *kinds)))
    rows = {expect: "".join(f"{table[expect, kind]:12}" for kind in kinds) for expect in ("HANG", "CRASH", "PASS")}
    lines += [f"  {expect:>12}{row}" for expect, row in rows.items()]
    return "\n".join(lines)


def as_json(result: Result) -> dict[str, object]:
    """One result for a file."""
    case = result.case
    return {
        "seed": case.seed, "number": case.number, "host": case.host.name, "trouble": case.trouble.name,
        "launcher": case.launcher, "phase": case.phase, "step": case.step, "rank": case.rank, "gpus": case.gpus,
        "expect": case.trouble.expect, "kind": result.kind, "cause": result.cause, "score": result.score,
        "told_s": result.told_s and round(result.told_s, 2), "because": result.because, "at": round(time.time()),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
