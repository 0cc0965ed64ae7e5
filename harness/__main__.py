"""``python -P -m harness`` is ``nsa-harness``."""

from harness.cli.main import main

main(prog_name="nsa-harness")
