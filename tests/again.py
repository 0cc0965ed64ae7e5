"""Runs pytest; the few tests that fail beside others are run once more, alone, and must pass then.

    python tests/again.py -n 3 tests/unit

Many tests are about clocks: what is told within ten seconds, what ends within two. Beside three others on two busy
cores such a test can lose its seconds without anything being wrong. What fails twice, or is one of many, is wrong.
Both runs are printed, and the names of what passed only alone come last: one that comes again and again is to mend.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FEW = 5
"""So many failures may be the machine's; more are the code's, and are not tried again."""


def main(argv: list[str]) -> int:
    """The exit status of pytest, of the second run where there was one."""
    pytest = [sys.executable, "-m", "pytest"]
    status = subprocess.run([*pytest, "--cache-clear", *argv], check=False).returncode
    cache = Path(".pytest_cache/v/cache/lastfailed")
    if status != 1 or not cache.is_file():
        return status
    failed = sorted(json.loads(cache.read_text()))
    if not 0 < len(failed) <= FEW:
        return status
    print(f"{len(failed)} failed beside others; once more, alone:", *failed, sep="\n  ", flush=True)
    status = subprocess.run([*pytest, *failed], check=False).returncode
    if status == 0:
        print("passed only alone:", *failed, sep="\n  ")
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
