"""``python -m bench.chaos``."""

from bench.chaos.faults import main

if __name__ == "__main__":
    raise SystemExit(main())
