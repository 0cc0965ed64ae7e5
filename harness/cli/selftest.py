"""nsa-harness selftest: does this tool judge right, on this machine, today?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness.cli.exit_codes import TEXT, ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from harness.selftest import Row

EXAMPLES = """\b
Examples:
  nsa-harness selftest
  nsa-harness selftest lock-deadlock gil-wait --rounds 10
  nsa-harness selftest --executor local

"""


@click.command(epilog=EXAMPLES + TEXT)
@click.argument("names", nargs=-1, metavar="[SPECIMEN]...")
@click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="Run everything this often.")
@click.option("--executor", default="forkserver", show_default=True, help="How trials start: forkserver or local.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything random.")
@click.option("--keep", metavar="DIR", help="Keep the evidence of every trial in a folder below DIR.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on standard output.")
@click.pass_context
def selftest(
    ctx: click.Context,
    *,
    names: tuple[str, ...],
    rounds: int,
    executor: str,
    seed: int,
    keep: str | None,
    as_json: bool,
) -> None:
    """Run programs with a known fault on this machine: expected verdict against got.

    Before you trust a verdict here, see that the known faults are told apart here: deadlocks, waits with the GIL
    held, endless loops, slow steps, crashes, memory limits, NaN, early exits, processes that do not want to die.
    At the end nothing may be left running.
    """
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory(prefix="nsa-harness-selftest-") as scratch:
        wrong = _run(
            _fresh(Path(keep)) if keep else Path(scratch),
            names=names,
            rounds=rounds,
            executor=executor,
            seed=seed,
            as_json=as_json,
        )
    ctx.exit(ExitCode.FINDINGS if wrong else ExitCode.OK)


def _fresh(keep: Path) -> Path:
    """A folder of its own below ``keep``: old heartbeats in a trial's folder would be taken for new ones."""
    from harness.clock import WallClock

    return keep / WallClock().wall().replace(":", "")


def _run(directory: Path, *, names: tuple[str, ...], rounds: int, executor: str, seed: int, as_json: bool) -> int:
    import uuid

    from harness.cli.console import result
    from harness.cli.wiring import Interrupt, parts
    from harness.core.errors import unknown
    from harness.machine import code_fingerprint, describe
    from harness.selftest import SelfTest
    from harness.settings import MARK, Settings, processes_with
    from harness.specimens.catalog import SPECIMENS

    for name in names:
        if name not in SPECIMENS.names():
            raise unknown("specimen", name, SPECIMENS)
    mark = uuid.uuid4().hex
    settings = Settings.read().marked(mark)
    wrong = rows = 0
    with Interrupt() as interrupted, parts(settings, target="nsa", executor=executor) as tools:
        test = SelfTest(
            directory=directory,
            parts=tools,
            code=code_fingerprint(),
            machine=describe().fingerprint,
            seed=seed,
            interrupted=interrupted,
        )
        if not as_json:
            result(f"{'specimen':<18} {'expected':<26} {'got':<26} seconds")
        for row in test.rows(names or SPECIMENS.names(), rounds=rounds):
            rows += 1
            wrong += bool(row.wrong)
            result(_json_line(row) if as_json else _line(row))
    left = [pid for pid, value in processes_with(MARK) if value == mark]
    if not as_json:
        leftovers = f"left behind: {', '.join(str(pid) for pid in left)}" if left else "no process left behind"
        result(f"{rows - wrong} of {rows} right in {rounds} round{'s' if rounds > 1 else ''}; {leftovers}")
    return wrong + len(left) + (1 if interrupted() else 0)


def _line(row: Row) -> str:
    expected = " or ".join(str(kind) for kind in row.specimen.kinds)
    if row.specimen.cause:
        expected += f" ({row.specimen.cause})"
    mark = "ok" if not row.wrong else "WRONG"
    text = f"{row.specimen.name:<18} {expected:<26} {row.verdict!s:<26} {row.seconds:7.1f}  {mark}"
    return text + "".join(f"\n    {why}" for why in row.wrong)


def _json_line(row: Row) -> str:
    import json

    from harness.core.codec import to_json

    return json.dumps(
        {
            "round": row.round,
            "specimen": row.specimen.name,
            "expected": [str(kind) for kind in row.specimen.kinds],
            "cause": row.specimen.cause,
            "verdict": to_json(row.verdict),
            "seconds": round(row.seconds, 3),
            "wrong": list(row.wrong),
        }
    )
