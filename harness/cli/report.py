"""nsa-harness report: the report of a run, again, from its journal; its bundle, its check, and the linter for words."""

from __future__ import annotations

import atexit
import gc
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli import complete
from harness.cli.exit_codes import ExitCode
from harness.cli.fitting import say
from harness.cli.options import RUNS
from harness.report.render import FORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from harness.core.campaign import CampaignSpec
    from harness.core.record import Run
    from harness.report.apart import Draw
    from harness.settings import Settings

EXAMPLES = """\b
Examples:
  nsa-harness report                   the last run, on the terminal
  nsa-harness report --open            its page in a browser
  nsa-harness report runs/20261121-130501-n_layers --format md
  nsa-harness report --format github >> "$GITHUB_STEP_SUMMARY"
  nsa-harness report --format junit --output results.xml
  nsa-harness report --all --format github     of every run, for a CI
  nsa-harness report --viewer --open   a page to look into it: filter, sort,
                                       every trial's time, stacks by rank
  nsa-harness report AFTER --compare BEFORE
  nsa-harness report AFTER --compare BEFORE --viewer --open    side by side
  nsa-harness report --format perfetto -o trace.json    for ui.perfetto.dev
  nsa-harness report --format speedscope -o stacks.json for speedscope.app
  nsa-harness report latest --bundle out      with its evidence, to pass on
  nsa-harness report --verify reports         compute everything in them again
  nsa-harness report --lint post-mortem.md     words that claim too much
  nsa-harness report --list
  nsa-harness report --index --open    the same as a page, with links
  nsa-harness report merge shards matrices/*.yaml    the shards of matrices,
                                       as one run each
\b
Exit codes:
  0    written; with --verify: every number and sentence is the same again
  1    --verify: something is not as the evidence gives it;
       merge: a cell did not end as expected;
       --lint: a word claims too much
  2    wrong use: unknown option or format, an error in the template
  6    the run cannot be read, or the report cannot be written;
       merge: a shard is missing, or every one
"""
TO_LOOK_INTO = frozenset({"viewer", "perfetto", "speedscope"})
"""Forms that no figure is drawn for, and no report written."""

OF_ALL = frozenset({"github", "short", "junit"})
"""What continuous integrations show, of as many runs as a job has made."""

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog=EXAMPLES)
@click.argument("names", nargs=-1, metavar="[[merge] RUN]..", shell_complete=complete.runs)
@RUNS
@click.option("--format", "form", type=click.Choice(FORMS.names()), help="Print it in this form (default: terminal).")
@click.option(
    "--compare", metavar="OTHER", shell_complete=complete.runs, help="Print what changed from run OTHER to RUN."
)
@click.option("--template", type=FILE, help="A Jinja2 file that lays out the page instead of ours.")
@click.option("--output", "-o", type=FILE, help="Write there instead of printing.")
@click.option("--open", "opened", is_flag=True, help="Show the page in a browser.")
@click.option("--repro", is_flag=True, help="Make a script that fails without the harness, and try it twice.")
@click.option(
    "--bundle",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write report and evidence, without names and secrets, into DIR: a new or empty folder, or a bundle.",
)
@click.option("--verify", "verified", is_flag=True, help="Compute the bundles at or below RUN .. again, and compare.")
@click.option("--lint", "linted", type=FILE, multiple=True, help="Check the words of a text; may be repeated.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of --format json.")
@click.option("--hide", multiple=True, metavar="TEXT", help="Hide this name or path too; may be repeated.")
@click.option("--all", "of_all", is_flag=True, help="Of every run: with --format github, short or junit.")
@click.option("--list", "listed", is_flag=True, help="List the runs, newest first.")
@click.option("--viewer", is_flag=True, help="Write viewer.html beside the report: a page to look into the run with.")
@click.option("--index", "indexed", is_flag=True, help="Write index.html: every run in a folder (RUN, or the runs).")
@click.option("--markdown", is_flag=True, help="As --format md.")
@click.option("--json", "as_json", is_flag=True, help="As --format json.")
@click.pass_context
def report(ctx: click.Context, *, names: tuple[str, ...], runs: str | None, **options: Any) -> None:
    """Write the report of RUN (the last one by default) again and print its summary.

    Works for finished, interrupted, empty and old runs, on any machine, without torch. Nothing is run, except by
    --repro. Beside the journal it writes report.md, report.html, report.json and figures/, where it may.

    A report with its evidence beside it (--bundle) is a RUN too: its pages are written again from that evidence.
    merge makes one new run of the runs of a matrix's shards (matrix run --shard), which it finds at or below each RUN;
    runs that it made there before are left out, and of a shard that was run again its last run counts. Its report is
    what it would have been if nobody had cut the matrix. Name the matrix files too, and one of which no job left a run
    gets a report that says so. Of shards that ran different commits of the program it names each, and compares no cells
    across them.

    --verify writes nothing: it makes them again and names every sentence that is not the same. It takes any number of
    bundles, or of folders with bundles in them.
    """
    from harness.settings import Settings

    if options["linted"]:
        ctx.exit(_lint(options["linted"]))
    if options["schema"]:
        from harness.report.render.json import published

        click.echo(published())
        return
    if options["verified"]:
        ctx.exit(_verify(names or (".",)))
    if names[:1] == ("merge",) and not Path("merge").is_dir():
        ctx.exit(_merge(names[1:], Settings.read(runs=runs)))
    if len(names) > 1:
        raise click.UsageError(f"one RUN at a time, not {len(names)}; only merge and --verify take several")
    run = names[0] if names else None
    where = Settings.read(runs=runs).runs
    if options["listed"]:
        from harness.cli.front import list_runs

        ctx.exit(list_runs(where))
    if options["of_all"]:
        if run or options["form"] not in OF_ALL:
            raise click.UsageError("--all takes no RUN, and goes with --format github, short or junit")
        _deliver(of_all(where, options["form"], hide=_hidden(options["hide"])), None, options)
        return
    if options["indexed"]:
        _index(Path(run) if run else where, options)
        return
    if options["viewer"] or options["form"] in TO_LOOK_INTO:
        with _uncollected():
            _look_into(where, run, options)
        return
    from harness.report.apart import apart

    with _uncollected(), apart() as draw:
        _report(where, run, options, draw)


@contextmanager
def _uncollected() -> Generator[None]:
    """Without the cyclic collector: a run is one tree that lives to the end; walking it is a fifth of the time."""
    atexit.register(gc.freeze)  # nor is it walked at the very end
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _report(where: Path, name: str | None, options: Mapping[str, Any], draw: Draw) -> None:
    from functools import partial

    from harness.cli.console import result
    from harness.core.errors import NotWritableError
    from harness.report.bundle import bundle, is_bundle, write_pages
    from harness.report.write import compared, form, hider_of, publish
    from harness.store import layout
    from harness.store.run_store import find_run, read_run

    directory = find_run(where, name)
    hide = _hidden(options["hide"])
    if options["bundle"]:
        say(bundle(directory, options["bundle"], hider=hider_of(hide)).sentence)
        return
    folder = _folder_of(where, name) or directory
    template = options["template"]
    if is_bundle(folder):
        if options["repro"]:
            raise click.UsageError(f"--repro needs the run itself, not its bundle {folder}")
        run = replace(read_run(directory), directory="")
        report = None
        click.echo(write_pages(folder).sentence, err=True)
    else:
        if options["repro"]:
            _reproduce(directory)
        run = read_run(directory)
        try:
            report = publish(run, directory, template=template, hide=hide, draw=draw)
        except NotWritableError as error:
            if options["opened"]:
                raise
            report = None
            click.echo(f"{error} It is only shown.", err=True)
    page = layout.report(folder, "html")
    if options["opened"]:
        click.launch(page.absolute().as_uri())
    chosen = "md" if options["markdown"] else "json" if options["as_json"] else options["form"] or "terminal"
    if options["compare"]:
        other = find_run(where, options["compare"])
        make = partial(compared, other, directory, "md" if chosen == "terminal" else chosen, hide=hide)
    else:
        laid_out = template if chosen in ("terminal", "html") else None
        make = partial(form, run, directory, chosen, hide=hide, report=report, template=laid_out)
    if chosen == "terminal" and not options["output"]:
        result(lambda: make().rstrip("\n"))
        return
    text = make()
    if options["output"]:
        _deliver(text, None, {**options, "opened": False})
    else:
        click.echo(text, nl=not text.endswith("\n"))


def _look_into(where: Path, name: str | None, options: Mapping[str, Any]) -> None:
    """The page to look into a run with, or its traces: printed, or written where it was asked for."""
    from harness.report.viewer.page import is_page
    from harness.report.write import compared, form
    from harness.store import layout
    from harness.store.run_store import find_run, read_run

    directory = find_run(where, name)
    hide = _hidden(options["hide"])
    folder = _folder_of(where, name) or directory
    beside = None
    if options["viewer"]:
        beside = layout.viewer(folder)
        if options["compare"]:
            beside = folder / f"compared-with-{Path(str(options['compare'])).name}.html"
        _keep(beside, options, is_ours=is_page, by="--viewer")
    chosen = "viewer" if options["viewer"] else options["form"]
    if options["compare"]:
        text = compared(find_run(where, options["compare"]), directory, chosen, hide=hide)
    else:
        text = form(read_run(directory), directory, chosen, hide=hide)
    _deliver(text, beside, options)


def of_all(where: Path, name: str, *, hide: tuple[str, ...] | None = None) -> str:
    """One of the forms ``OF_ALL`` of every run in ``where``, the oldest first.

    Raises:
        NoRunError: there is none.
    """
    from harness.core.errors import NoRunError
    from harness.report.render import junit, markdown
    from harness.report.write import form
    from harness.store.run_store import read_run
    from harness.store.shelf import folders

    texts = [form(read_run(directory), directory, name, hide=hide) for directory in folders(where)]
    if not texts:
        raise NoRunError(f"no runs in {where}")
    return junit.joined(texts) if name == "junit" else markdown.joined(texts)


def _index(folder: Path, options: Mapping[str, Any]) -> None:
    from harness.core.errors import NoRunError
    from harness.report.viewer.page import index, is_index
    from harness.report.write import hider_of

    if not folder.is_dir():
        raise NoRunError(f"{folder}: no folder with runs in it")
    beside = folder / "index.html"
    _keep(beside, options, is_ours=is_index, by="--index")
    _deliver(index(folder, hide=hider_of(_hidden(options["hide"])).text), beside, options)


def _keep(beside: Path, options: Mapping[str, Any], *, is_ours: Callable[[Path], bool], by: str) -> None:
    """Refuse to replace a file that nobody named and that ``report`` with ``by`` did not make.

    Raises:
        NotOursError: ``beside`` is such a file, and no other was asked for.
    """
    from harness.core.errors import NotOursError

    if not options["output"] and beside.exists() and not is_ours(beside):
        raise NotOursError(f"{beside} is there already and was not made by nsa-harness report {by}: it stays as it is.")


def _deliver(text: str, beside: Path | None, options: Mapping[str, Any]) -> None:
    """``text`` as the file that was asked for, else as ``beside``, else printed; shown in a browser if asked."""
    path: Path | None = options["output"] or beside
    if path is None:
        if options["opened"]:
            raise click.UsageError("--open shows a page; add --viewer, or -o FILE")
        click.echo(text, nl=False)
        return
    _put(path, text, is_named=path is not beside)
    click.echo(f"written: {path}", err=True)
    if options["opened"]:
        click.launch(path.absolute().as_uri())


def _folder_of(where: Path, name: str | None) -> Path | None:
    """The folder that ``name`` names, where it is there: of a bundle not the one that its evidence is unpacked in."""
    for path in (Path(name), where / name) if name else ():
        if path.is_dir():
            return path
    return None


def _verify(names: tuple[str, ...]) -> ExitCode:
    """Every sentence that is not as its evidence gives it, under a line for each bundle."""
    from harness.classify.engine import classify
    from harness.core.errors import DamagedArchiveError
    from harness.report.verify import bundles, verify
    from harness.search.scaling import slope_through

    changed = damaged = 0
    for folder in list(chain.from_iterable(map(bundles, map(Path, names)))):
        verified = verify(folder, judge=classify, slope=slope_through)
        damaged += verified.is_damaged
        changed += bool(verified.differences) and not verified.is_damaged
        say(verified.sentence)
        for difference in verified.differences:
            say(f"  {difference}")
    if changed:
        click.echo("Pages are written again from their evidence by: nsa-harness report PATH", err=True)
    if damaged:
        click.echo(DamagedArchiveError.help, err=True)
    return ExitCode.FINDINGS if changed or damaged else ExitCode.OK


def _merge(names: tuple[str, ...], settings: Settings) -> ExitCode:
    """A run for each matrix that is named, or that shards are of, reported like any other; the worst of their ends."""
    from harness.cli.console import screen
    from harness.cli.matrix import question_in
    from harness.cli.wiring import parts
    from harness.clock import WallClock
    from harness.merge import is_asked_in, merge, shards_at
    from harness.report.text import listed

    files = [name for name in names if Path(name).suffix in (".yaml", ".yml") and not Path(name).is_dir()]
    places = [Path(name) if Path(name).exists() else settings.runs / name for name in names if name not in files]
    if not places:
        raise click.UsageError("name the runs to merge, or folders that have them: nsa-harness report merge RUN..")
    questions = [(file, question_in(settings, file)) for file in files]
    groups = shards_at(places, or_none=bool(files))
    codes: list[ExitCode] = []
    for shards in groups:
        spec = shards[0].question
        with parts(settings, target=spec.matrix.target, executor="local", interrupted=lambda: False) as tools:
            run = merge(shards, runs=settings.runs, parts=tools, screen=screen(quiet=True), clock=WallClock())
        codes.append(_merged(run))
    for file, spec in questions:
        if spec is not None and not is_asked_in(groups, spec):
            others = [name for name in names if name not in files]
            click.echo(f"{file}: no job left a run of it at or below {listed(others)}", err=True)
            codes.append(_merged(_without_a_run(settings, spec, file)))
    return max(codes, default=ExitCode.NOTHING)


def _without_a_run(settings: Settings, spec: CampaignSpec, file: str) -> Run:
    """A run of the matrix in ``file`` which says of each of its cells that nobody ran it."""
    from harness.campaign import Campaign
    from harness.cli.console import screen
    from harness.cli.wiring import new_run, parts
    from harness.core.campaign import LostShard
    from harness.core.invocation import Invocation

    command = Invocation(verb=("matrix", "run"), operands=(file,))
    lost = replace(spec, lost=(LostShard(name="every shard", cells=spec.cells, invocation=command),))
    with (
        parts(settings, target=spec.matrix.target, executor="local", interrupted=lambda: False) as tools,
        new_run(settings, lost, invocation=command) as store,
    ):
        return Campaign(store=store, parts=tools, screen=screen(quiet=True)).settle(seconds=0.0)


def _merged(run: Run) -> ExitCode:
    """Write and show the report of a merged run; what its end means."""
    from harness.cli.console import result
    from harness.cli.exit_codes import of_search
    from harness.report.findings import Findings
    from harness.report.words import several_programs
    from harness.report.write import summary_text, write

    write(run, Path(run.directory))
    result(lambda: summary_text(run))
    findings = Findings(run=run)
    for shard in findings.lost:
        click.echo(f"{shard.name} is missing", err=True)
    if mixed := several_programs(findings):
        click.echo(mixed, err=True)
    return max(of_search(findings), ExitCode.INFRA if findings.lost else ExitCode.OK)


def _put(path: Path, text: str, *, is_named: bool) -> None:
    """``text`` as the file ``path``; into it where a device or a pipe is there, which must not be replaced.

    ``is_named`` says that whoever asked for the text named the file.
    """
    from harness.core.errors import NoOutputError, StoreError
    from harness.store.files import write_atomic, write_failed

    try:
        if not path.exists() or path.is_file():
            write_atomic(path.resolve(), text)
        else:
            path.write_text(text, encoding="utf-8", errors="replace")
    except StoreError as error:
        raise NoOutputError(error, is_named=is_named) from error
    except OSError as error:
        failed = write_failed(path, error, safe="no file was touched")
        raise NoOutputError(failed, is_named=is_named) from error


def _hidden(added: tuple[str, ...]) -> tuple[str, ...] | None:
    """This machine's names and ``added`` ones; None when there are none of these."""
    from harness.settings import identities

    return (*identities(), *added) if added else None


def _reproduce(directory: Path) -> None:
    from functools import partial

    from harness.clock import WallClock
    from harness.reproduce import reproduce
    from harness.settings import Settings
    from harness.store.run_store import read_run

    settings = Settings.read()
    tried = reproduce(
        read_run(directory),
        directory,
        python=settings.python,
        env=dict(settings.child_env),
        clock=WallClock(),
        note=partial(click.echo, err=True),
    )
    click.echo(f"{tried.sentence}", err=True)


def _lint(paths: tuple[Path, ...]) -> ExitCode:
    """Every word that claims too much, as ``file:line: ..``."""
    from harness.core.errors import SpecError
    from harness.report.claims import problems

    number = 0
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise SpecError(f"{path}: cannot be read: {error.strerror}") from error
        claims = problems(text)
        number += len(claims)
        for problem in claims:
            say(f"{path}:{problem.line}: {problem.what}")
    click.echo(
        f"{number} claims too strong for trials in {len(paths)} file(s)" if number else "nothing to remark", err=True
    )
    return ExitCode.FINDINGS if number else ExitCode.OK
