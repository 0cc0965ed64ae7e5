"""nsa-harness selftest: does this tool judge right, on this machine, today?"""

from __future__ import annotations

import textwrap
from collections import Counter
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from harness.cli import complete
from harness.cli.exit_codes import ExitCode
from harness.cli.matrix_options import placed
from harness.cli.options import PER_TRIAL, SEED
from harness.core.verdict import Kind
from harness.report.tried import grouped

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path

    from harness.cli.wiring import Interrupt
    from harness.cluster.head import On
    from harness.conduct import Parts
    from harness.core.verdict import Verdict
    from harness.selftest import JudgedSpecimen
    from harness.settings import Settings
    from harness.specimens.catalog import Needs, Specimen


EPILOG = """\b
Examples:
  nsa-harness selftest
  nsa-harness selftest lock-deadlock gil-wait --rounds 10
  nsa-harness selftest --only look-alike --load --jobs 4 --rounds 20
  nsa-harness selftest --gpu --only nccl
  nsa-harness selftest --only gloo --on slurm --nodes 2 --nodes-per-trial 2
  nsa-harness selftest --keep seen && nsa-harness classify seen
\b
Exit codes:
  0    every verdict is as declared, and nothing is left running
  1    a verdict differs, or a process was left behind
  2    wrong use: unknown specimen or group, or no GPU where one is needed
  6    the machine is in the way (disk, processes)
  130  interrupted; what was judged so far is printed
"""

KINDS = ("pass", "hang", "slow", "crash", "oom", "nonfinite", "infra")
GROUPS = ("cpu", "gloo", "gpu", "nccl", "fault", "look-alike", *KINDS)


@click.command(epilog=EPILOG)
@click.argument("names", nargs=-1, metavar="[SPECIMEN]...", shell_complete=complete.faults)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(GROUPS),
    metavar="GROUP",
    help=f"Only this group ({', '.join(GROUPS)}); more than one adds up.",
)
@click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="Run everything this often.")
@click.option("--gpu", is_flag=True, help="Those that need one GPU (gpu) or two with NCCL (nccl), too.")
@click.option("--load", is_flag=True, help="Keep every core of this machine busy meanwhile.")
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Trials at the same time.")
@click.option("--executor", default="forkserver", show_default=True, help="How trials start: forkserver or local.")
@placed
@PER_TRIAL
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of everything random.")
@click.option(
    "--no-limits",
    "blind",
    is_flag=True,
    help="The default limits only: none is declared or learned first. What is slow by its limit alone is left out.",
)
@click.option("--keep", metavar="DIR", help="Keep the evidence of every trial in a folder below DIR.")
@click.option("--list", "as_list", is_flag=True, help="Say what each specimen imitates; run nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a trial on standard output.")
@click.pass_context
def selftest(ctx: click.Context, *, names: tuple[str, ...], **options: Any) -> None:
    """Run programs with a known fault on this machine: expected verdict against got.

    Before you trust a verdict here, see that the known faults are told apart here: deadlocks, waits with the GIL
    held, endless loops, crashes, memory limits, NaN, early exits; and that what only looks like a hang is not called
    one: long compilations, slow loaders, slow steps. At the end nothing may be left running.

    The score card has a row for each specimen, what it must get; below it, what it got if that differs. "after" are
    the seconds from the last sign of life to the verdict, the slowest of all rounds.
    """
    from pathlib import Path

    from harness.clock import WallClock
    from harness.store.folder import scratch

    chosen = _chosen(names, options)
    if options["as_list"]:
        _list(chosen)
        return
    # Old heartbeats in a trial's folder would be taken for new ones, so each self-test has a folder of its own.
    own = WallClock().wall().replace(":", "")
    with scratch("nsa-harness-selftest-") as folder:
        directory = Path(options["keep"]) / own if options["keep"] else folder
        code = _run(directory, chosen, options)
    if options["keep"]:
        click.echo(f"evidence: {directory}", err=True)
    ctx.exit(code)


def _chosen(names: tuple[str, ...], options: Mapping[str, Any]) -> tuple[Specimen, ...]:
    """The specimens asked for, in the table's order; without limits none that needs them.

    Raises:
        UnknownFaultError: no specimen has that name.
        click.UsageError: none is left, or it needs a GPU that is not there.
    """
    from harness.core.errors import UnknownFaultError, unknown
    from harness.core.verdict import Kind
    from harness.specimens.catalog import SPECIMENS, Needs

    for name in names:
        if name not in SPECIMENS.names():
            raise unknown("specimen", name, SPECIMENS, error=UnknownFaultError)
    only, gpu = frozenset(options["only"]), options["gpu"]
    needed = {Needs.GPU: 1, Needs.NCCL: 2}
    specimens: list[Specimen] = []
    needing: list[str] = []
    for specimen in map(SPECIMENS.load, names or SPECIMENS.names()):
        if (only and not only & _groups(specimen)) or (specimen.needs in needed and not gpu and not names):
            continue
        if options["blind"] and specimen.expect is Kind.SLOW:
            needing.append(specimen.name)
        else:
            specimens.append(specimen)
    if needing:
        click.echo(click.wrap_text(f"left out, because without limits they pass: {', '.join(needing)}", 80), err=True)
        if not specimens:
            raise click.UsageError("with --no-limits no specimen is left")
    if not specimens:
        hint = "" if gpu else "; those that need a GPU take part with --gpu"
        raise click.UsageError(f"no specimen is in {', '.join(sorted(only))}{hint}. List all with: selftest --list")
    if not options["as_list"]:
        _need(specimens, needed)
    return tuple(specimens)


def _need(specimens: list[Specimen], needed: Mapping[Needs, int]) -> None:
    """Refuse the first of ``specimens`` that needs more GPUs than there are."""
    from harness.machine import gpu_count

    there = gpu_count()
    for specimen in specimens:
        number = needed.get(specimen.needs, 0)
        if number > there:
            raise click.UsageError(
                f"{specimen.name} needs {number} NVIDIA GPU(s), and this machine has {there}. "
                "Choose others with --only, or leave out --gpu"
            )


def _groups(specimen: Specimen) -> frozenset[str]:
    alike = "look-alike" if specimen.look_alike else "fault"
    return frozenset({specimen.needs.value, alike, *(kind.value.lower() for kind in specimen.kinds)})


def _list(chosen: tuple[Specimen, ...]) -> None:
    for specimen in chosen:
        verdict = "/".join(specimen.kinds) + (f" ({specimen.cause})" if specimen.cause else "")
        click.echo(f"{specimen.name:<20} {specimen.needs.value:<5} {verdict}")
        click.echo(textwrap.fill(specimen.imitates, width=80, initial_indent=" " * 21, subsequent_indent=" " * 21))


def _run(directory: Path, chosen: tuple[Specimen, ...], options: Mapping[str, Any]) -> int:
    import os
    import uuid
    from contextlib import nullcontext

    from harness.cli.wiring import Interrupt
    from harness.cluster.head import On
    from harness.machine import code_fingerprint, describe
    from harness.selftest import SelfTest, busy_cores
    from harness.settings import MARK, Settings, processes_with

    mark = uuid.uuid4().hex
    settings = Settings.read().marked(mark)
    rows: list[JudgedSpecimen] = []
    rounds, as_json, on = options["rounds"], options["as_json"], On.of(options)
    names = [specimen.name for specimen in chosen]
    total = rounds * len(names)
    cores = len(os.sched_getaffinity(0))
    with (
        Interrupt() as interrupted,
        _parts(settings, executor=options["executor"], chosen=chosen, interrupted=interrupted, on=on) as tools,
        busy_cores(cores) if options["load"] else nullcontext(),
    ):
        test = SelfTest(
            directory=directory,
            parts=tools,
            code=code_fingerprint(),
            machine=describe().fingerprint,
            seed=options["seed"],
            interrupted=interrupted,
            blind=options["blind"],
            note=lambda text: None if as_json else click.echo(text, err=True),
        )
        for row in test.rows(names, rounds=rounds, jobs=max(options["jobs"], on.lanes)):
            rows.append(row)
            if as_json:
                click.echo(_json_line(row))
            else:
                click.echo(progress(row, number=len(rows), total=total), err=True)
    pids = [pid for pid, value in processes_with(MARK) if value == mark]
    rows.sort(key=lambda row: (row.round, names.index(row.specimen.name)))
    right = sum(row.score.right for row in rows)
    if not as_json:
        busy = f", all {cores} cores kept busy" if options["load"] else ""
        at_once = f", {options['jobs']} at a time" if options["jobs"] > 1 else ""
        leftovers = f"left behind: PID {', '.join(map(str, pids))}" if pids else "no process left behind"
        plural = "s" if rounds > 1 else ""
        for line in (*card(rows), "", *summary(rows)):
            click.echo(line)
        click.echo(f"{right} of {len(rows)} right in {rounds} round{plural}{at_once}{busy}; {leftovers}")
    if interrupted():
        click.echo(f"interrupted after {len(rows)} of {total}", err=True)
        return ExitCode.INTERRUPTED
    return ExitCode.OK if not pids and right == len(rows) else ExitCode.FINDINGS


@contextmanager
def _parts(
    settings: Settings, *, executor: str, chosen: tuple[Specimen, ...], interrupted: Interrupt, on: On
) -> Generator[Mapping[Needs, Parts]]:
    """The parts for each need. A server that forks must never have touched a GPU, so those trials start afresh."""
    from contextlib import ExitStack

    from harness.cli.wiring import lanes
    from harness.specimens.catalog import Needs

    needs = {specimen.needs for specimen in chosen}
    with ExitStack() as stack:
        parts: dict[Needs, Parts] = {}
        for ways, group in ((executor, {Needs.CPU, Needs.GLOO}), ("local", {Needs.GPU, Needs.NCCL})):
            if needs & group:
                tools = lanes(settings, target="nsa", executor=ways, interrupted=interrupted, on=on)
                parts |= dict.fromkeys(needs & group, stack.enter_context(tools)[0])
        yield parts


def _json_line(row: JudgedSpecimen) -> str:
    import json

    from harness.core.codec import to_json

    specimen = row.specimen
    return json.dumps(
        {
            "round": row.round,
            "specimen": specimen.name,
            "needs": specimen.needs.value,
            "look_alike": specimen.look_alike,
            "expected": {
                "kinds": list(map(str, specimen.kinds)),
                "cause": specimen.cause,
                "rank": specimen.verdict_rank,
                "phase": specimen.verdict_phase,
            },
            "score": to_json(row.score),
            "verdict": to_json(row.verdict),
            "seconds": round(row.seconds, 3),
            "to_verdict_s": None if row.to_verdict_s is None else round(row.to_verdict_s, 3),
        }
    )


LAYOUT = "{:<19} {:<10} {:<22} {:>4} {:<8} {:>5} {:>6}"
"""Name, kind, cause, rank, phase, seconds from the last sign of life to a hang's verdict, rounds that were right."""

NOTHING = "-"
MOST_ROUNDS = 2
"""Wrong rounds of a specimen that are explained."""


def progress(row: JudgedSpecimen, *, number: int, total: int) -> str:
    """One finished trial on one line: ``[ 12/400] lock-deadlock  HANG (deadlock)  7.1 s``."""
    mark = "" if row.score.right else "  WRONG"
    width = len(str(total))
    return f"[{number:>{width}}/{total}] {row.specimen.name:<19} {row.verdict!s:<26} {row.seconds:6.1f} s{mark}"


def card(rows: Sequence[JudgedSpecimen]) -> list[str]:
    """The table: what each specimen must get, and below it what it got where that differs."""
    lines: list[str] = [LAYOUT.format("specimen", "kind", "cause", "rank", "phase", "after", "right")]
    for of_one in grouped(rows, lambda row: row.specimen.name).values():
        lines += _specimen(of_one)
    return lines


def summary(rows: Sequence[JudgedSpecimen]) -> list[str]:
    """How many were right in each column, hangs seen in look-alikes, and the time to a hang's verdict."""
    columns = ("kind", "cause", "rank", "phase")
    scores: list[str] = []
    for column in columns:
        values = [getattr(row.score, column) for row in rows]
        judged = len(values) - values.count(None)
        if judged:
            scores.append(f"{column} {values.count(True)}/{judged}")
    lines = [f"right: {', '.join(scores) or 'nothing was run'}"]
    alike = [row.verdict.kind for row in rows if row.specimen.look_alike]
    if alike:
        lines.append(f"look-alikes: {alike.count(Kind.HANG)} called HANG in {len(alike)} runs")
    hung = [(row.to_verdict_s, row.specimen.name) for row in rows if row.to_verdict_s is not None]
    if hung:
        longest_s, which = max(hung)
        middle_s = median(seconds for seconds, _ in hung)
        lines.append(f"stall to HANG: median {middle_s:.1f} s, longest {longest_s:.1f} s ({which})")
    return lines


def _specimen(rows: Sequence[JudgedSpecimen]) -> list[str]:
    specimen = rows[0].specimen
    wrong = [row for row in rows if not row.score.right]
    right = len(rows) - len(wrong)
    waits = [row.to_verdict_s for row in rows if row.to_verdict_s is not None]
    score = f"{right}/{len(rows)}" if len(rows) > 1 else "ok" if right else "WRONG"
    lines = [_expected(specimen, slowest_s=max(waits, default=None), score=score)]
    for verdict, times in _distinct(wrong):
        got = "  got" if times == 1 else f"  got, {times} times"
        lines.append(_row(got, verdict.kind, verdict.cause or None, verdict.rank, verdict.phase or None, "", ""))
    for row in wrong[:MOST_ROUNDS]:
        where = f"round {row.round}: " if len(rows) > 1 else ""
        for why in row.score.wrong:
            text = f"{where}{why}"
            lines.append(textwrap.fill(text, width=80, initial_indent="    ", subsequent_indent="      "))
    if len(wrong) > MOST_ROUNDS:
        lines.append(f"    and {len(wrong) - MOST_ROUNDS} rounds more (--json has them all)")
    return lines


def _row(*columns: object) -> str:
    return LAYOUT.format(*(NOTHING if column is None else column for column in columns)).rstrip()


def _expected(specimen: Specimen, *, slowest_s: float | None, score: str) -> str:
    after = None if slowest_s is None else f"{slowest_s:.1f}"
    rank, phase = specimen.verdict_rank, specimen.verdict_phase
    return _row(specimen.name, "/".join(specimen.kinds), specimen.cause or None, rank, phase or None, after, score)


def _distinct(rows: Sequence[JudgedSpecimen]) -> list[tuple[Verdict, int]]:
    """Verdicts of ``rows`` that differ in a column, most frequent first, and how often each came."""
    firsts: dict[tuple[object, ...], Verdict] = {}
    times: Counter[tuple[object, ...]] = Counter()
    for row in rows:
        verdict = row.verdict
        columns = (verdict.kind, verdict.cause, verdict.rank, verdict.phase)
        firsts.setdefault(columns, verdict)
        times[columns] += 1
    return [(firsts[columns], count) for columns, count in times.most_common()]
