"""Every specimen that hangs on a CPU, as a pytest test under ``--hang-guard``: named, and the later tests run?

    python bench/hang_guard_specimens.py                 # each in a session of its own, without pytest-xdist
    python bench/hang_guard_specimens.py --xdist 2       # all of them in one session, but what hangs when that ends
    python bench/hang_guard_specimens.py gil-wait stopped

A specimen is called as it strikes the trainer, in the test's own process, between a test before and a test after.
``named``: the test failed with a verdict HANG of the guard's; ``mentioned``: the guard said where it stands and left it
alone, since what computes may only be slow, and pytest-timeout ended it. What somebody outside could end is waited for
four times ``--stall``. A worker of xdist that has to be ended for another test does not get to its end, so a specimen
that hangs there has a session of its own. Exit status 1 where neither is so, or a later test was not run.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from harness.core.verdict import Kind
from harness.specimens.catalog import SPECIMENS, Needs

HEAD = """\
from types import SimpleNamespace
from harness.specimens.catalog import SPECIMENS

def strike(name, folder):
    scene = SimpleNamespace(rank=0, world=1, device="cpu", step=1, trial_dir=folder, random=lambda: 0.0, state=None)
    SPECIMENS.load(name).strike(scene)
"""
TESTS = """
def test_before_{word}(): pass
def test_{word}(tmp_path): strike("{name}", tmp_path)
def test_after_{word}(): pass
"""
LIMIT_S = 150
AT_THE_END = ("late-exit",)
"""Specimens that hang when the process ends."""


def hanging() -> list[str]:
    """The names of the specimens that hang and need nothing but a CPU."""
    loaded = {name: SPECIMENS.load(name) for name in SPECIMENS}
    return [name for name, one in loaded.items() if one.needs is Needs.CPU and one.expect is Kind.HANG]


def session(names: list[str], folder: Path, options: list[str]) -> tuple[dict[str, ET.Element], str, int]:
    """Test cases by name, what was printed, and the status of one pytest session with these specimens."""
    words = {name: name.replace("-", "_") for name in names}
    tests = "".join(TESTS.format(name=name, word=word) for name, word in words.items())
    (folder / "test_specimens.py").write_text(HEAD + tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "--hang-guard"]
    command += ["--timeout", str(LIMIT_S), "--junitxml", "seen.xml", "test_specimens.py"]
    status = -1
    with (folder / "said.txt").open("w") as out, suppress(subprocess.TimeoutExpired):
        most_s = LIMIT_S * len(names) + 60
        status = subprocess.run(command, stdout=out, stderr=out, check=False, cwd=folder, timeout=most_s).returncode
    for place in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if place.readlink() == folder:
                os.kill(int(place.parent.name), signal.SIGKILL)
    cases = ET.parse(folder / "seen.xml").iter("testcase") if (folder / "seen.xml").exists() else ()
    return {str(case.get("name")): case for case in cases}, (folder / "said.txt").read_text(), status


def row(name: str, cases: dict[str, ET.Element], said: str) -> tuple[str, str, str]:
    """What became of a specimen's test, of the ones around it, and the verdict that the failure names."""
    word = name.replace("-", "_")
    case = cases.get(f"test_{word}")
    text = "" if case is None else "".join(found.text or "" for found in (*case.iter("failure"), *case.iter("error")))
    verdict = re.search(r"HANG \([a-z-]+\)", text)
    around = [cases.get(f"test_{side}_{word}") for side in ("before", "after")]
    kept = all(one is not None and not list(one) for one in around)
    if verdict:
        how = "named"
    elif f"test_{word}" in said.partition("hang guard")[2]:
        how = "mentioned"
    else:
        how = "NEITHER" if case is not None else "NOT RUN"
    return how, "run" if kept else "LOST", verdict[0] if verdict else ""


def main() -> None:
    """One table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="SPECIMEN")
    parser.add_argument("--xdist", type=int, default=0, help="workers; 0 without pytest-xdist, a session for each")
    parser.add_argument("--jobs", type=int, default=3, help="sessions at once")
    parser.add_argument("--stall", default="10", help="seconds of the longest healthy wait for somebody outside")
    given = parser.parse_args()
    names = given.names or hanging()
    options = ["-n", str(given.xdist)] if given.xdist else ["-p", "no:xdist"]
    options += ["--hang-guard-stall", given.stall]
    print("| specimen | declared | the test is | verdict | the tests around it | seconds |\n|:--|:--|:--|:--|:--|--:|")
    wrong = 0
    together = [name for name in names if given.xdist and name not in AT_THE_END]
    groups = [group for group in (together, *([name] for name in names if name not in together)) if group]
    with ThreadPoolExecutor(given.jobs) as pool:
        for group, (cases, said, status, took) in zip(groups, pool.map(partial(timed, options), groups), strict=True):
            for name in group:
                how, around, verdict = row(name, cases, said)
                wrong += how.isupper() or around == "LOST"
                cause = SPECIMENS.load(name).cause
                print(f"| {name} | HANG ({cause}) | {how} | {verdict} | {around} | {took:.0f} |", flush=True)
            if not cases:
                print(f"status {status}: {said[-2000:]}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


def timed(options: list[str], names: list[str]) -> tuple[dict[str, ET.Element], str, int, float]:
    """A session in a folder of its own, and how many seconds it took."""
    with tempfile.TemporaryDirectory() as place:
        began = time.monotonic()
        return *session(names, Path(place), options), time.monotonic() - began


if __name__ == "__main__":
    main()
