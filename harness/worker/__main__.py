"""``python -P -m harness.worker TRIAL_DIR``."""

from __future__ import annotations

import sys

from harness.worker.main import run

if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1]))
