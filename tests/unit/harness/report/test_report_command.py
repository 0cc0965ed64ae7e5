"""nsa-harness report: every option does what its help says, and what is wrong says so in one line."""

from __future__ import annotations

import errno
import io
import json
import os
import sys

import pytest
from click.testing import CliRunner

from harness.cli.front import list_runs
from harness.cli.main import main
from harness.report.render.json import published
from harness.store.files import write_failed
from harness.store.run_store import RunStore


@pytest.fixture
def report(monkeypatch):
    """Run the command; figures are left out, they have tests of their own."""
    monkeypatch.setattr("harness.report.apart.find_spec", lambda _: None)

    def run(*argv):
        return CliRunner().invoke(main, ["report", *map(str, argv)])

    return run


def test_the_summary_is_printed_and_every_file_is_written(report, make_run):
    _, run_dir = make_run("threshold")
    done = report(run_dir)
    assert done.exit_code == 0
    assert done.output.startswith("HANG (deadlock) at n_layers=5, not at n_layers=4. n_layers=5 hangs (deadlock)")
    assert {path.name for path in run_dir.glob("report.*")} == {
        "report.md", "report.html", "report.json", "report.claims.json",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["aborted", "empty"])
def test_a_run_that_did_not_end_says_so_in_its_first_line(name, report, make_run):
    done = report(make_run(name)[1])
    assert done.exit_code == 0
    assert done.output.splitlines()[0].startswith(("No answer (interrupted)", "No answer yet (interrupted)"))


def test_a_form_goes_to_a_file(report, make_run, tmp_path):
    out = tmp_path / "results.xml"
    done = report(make_run("threshold")[1], "--format", "junit", "-o", out)
    assert done.exit_code == 0
    assert "<testsuite " in out.read_text()
    assert "<testsuite " not in done.stdout


@pytest.fixture
def read_only(monkeypatch):
    """A run's folder that lies on a file system that nobody may write to."""

    def refuse(path, *_):
        raise write_failed(path, OSError(errno.EROFS, os.strerror(errno.EROFS)), safe="nothing was changed")

    monkeypatch.setattr("harness.report.write.write_atomic", refuse)


@pytest.mark.parametrize("options", [(), ("--format", "md"), ("--format", "json")])
def test_a_run_that_may_only_be_read_is_shown_and_it_is_said_that_nothing_was_written(
    report, make_run, read_only, options
):
    run_dir = make_run("threshold")[1]
    done = report(run_dir, *options)

    assert done.exit_code == 0
    assert "n_layers=5" in done.stdout
    assert "Read-only file system" in done.stderr
    assert "only shown" in done.stderr


def test_the_report_of_a_run_that_may_only_be_read_goes_where_it_is_asked_to(report, make_run, read_only, tmp_path):
    out = tmp_path / "report.md"

    assert report(make_run("threshold")[1], "--format", "md", "-o", out).exit_code == 0
    assert "n_layers=5" in out.read_text()


def test_a_page_that_could_not_be_written_is_not_opened(report, make_run, read_only):
    done = report(make_run("threshold")[1], "--open")

    assert done.exit_code == 6
    assert "Read-only file system" in done.stderr


def test_a_pipe_is_written_into_and_a_link_stays_one(report, make_run, tmp_path):
    """Replacing what is there by a new file would, of a device such as /dev/null, leave the machine without it."""
    run_dir, pipe, link, file = make_run("threshold")[1], tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert report(run_dir, "--format", "short", "-o", pipe).exit_code == 0
    assert "HANG (deadlock)" in os.read(reader, 65536).decode()
    assert pipe.is_fifo()
    os.close(reader)
    file.write_text("before")
    link.symlink_to(file)
    assert report(run_dir, "--format", "short", "-o", link).exit_code == 0
    assert link.is_symlink()
    assert "HANG (deadlock)" in file.read_text()


def test_two_runs_are_compared(report, make_run, parts):
    before = make_run("threshold")[1]
    after = make_run(parts["Canned"](parts["spec"](), [parts["passed"](5), parts["passed"](5, 1)]))[1]
    done = report(after, "--compare", before)
    assert "n_layers=5: HANG (deadlock) before, PASS after" in done.output
    assert "| `n_layers=5` | fixed | `fault: backward-deadlock@n_layers>=5 -> none`" in done.output
    told = json.loads(report(after, "--compare", before, "--json").output)
    assert (told["kind"], told["claim_word"]) == ("comparison", "isolated")


def test_a_name_of_ones_own_is_hidden(report, make_run):
    done = report(make_run("threshold")[1], "--format", "md", "--hide", "Example CPU")
    assert "Example CPU" not in done.output
    assert "(hidden) @ 2.50GHz" in done.output


def test_words_that_claim_too_much_are_named_with_file_and_line(report, tmp_path):
    text = tmp_path / "post-mortem.md"
    text.write_text("# Report\n\nThe root cause is confirmed.\nThe arm without it needs a retest.\n")
    done = report("--lint", text)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [f"{text}:3", f"{text}:3"]
    assert "'confirmed' claims too much" in lines[1]
    assert "(line 4 says: 'needs a retest')" in lines[1]
    text.write_text("Observed once.\n")
    assert report("--lint", text).exit_code == 0


def test_the_schema_is_the_published_one(report):
    assert json.loads(report("--schema").output) == json.loads(published())


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (("nowhere",), 6, "nowhere"),
        (("--lint", "not-there.md"), 2, "not-there.md: cannot be read"),
        (("--format", "pdf"), 2, "'pdf' is not one of"),
    ],
)
def test_what_is_wrong_says_so(argv, code, says, report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = report(*argv)
    assert done.exit_code == code
    assert says in done.output
    assert "Traceback" not in done.output


ALONE = """
version: 1
name: alone
description: "Does it finish: python train.py"
target: command
command: [python, train.py]
axes: {length: {type: ordered, values: [1], apply: {arg: --length}}}
include: [{}]
"""


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def listed(runs, monkeypatch, *, columns=80):
    """What ``report --list`` shows on a terminal of so many columns."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout", Terminal())
    assert list_runs(runs) == 0
    return sys.stdout.getvalue().splitlines()


def test_the_list_has_the_answer_of_a_question_and_not_that_there_is_one(report, make_run):
    _, run_dir = make_run("threshold")
    assert "HANG" not in report("--list", "--runs", run_dir.parent).stdout  # before there is a report

    report(run_dir)

    (line,) = report("--list", "--runs", run_dir.parent).stdout.splitlines()
    verdict = json.loads((run_dir / "report.json").read_text())["verdict"]
    assert verdict == "HANG (deadlock) at n_layers=5, not at n_layers=4"
    assert line.split("  ")[-2:] == [verdict, "From which n_layers in 1..12 does training fail?"]


@pytest.mark.parametrize(
    ("trials", "words"),
    [
        ([({}, "hang")], "HANG (deadlock)"),
        ([({}, "pass", 0), ({}, "pass", 1), ({}, "crash", 2)], "2 PASS, 1 CRASH (RuntimeError)"),
    ],
)
def test_the_list_has_the_verdict_of_a_program(report, make_campaign, trials, words):
    _, run_dir = make_campaign(trials, text=ALONE)
    report(run_dir)

    (line,) = report("--list", "--runs", run_dir.parent).stdout.splitlines()

    assert [part.strip() for part in line.split("  ")[-2:]] == [words, "Does it finish: python train.py"]


def test_the_list_has_the_failure_of_many_cells_in_a_few_words_and_how_far_they_came(report, make_campaign):
    trials = [({}, "pass"), ({"ckpt": "reentrant"}, "crash")]
    _, run_dir = make_campaign(trials, ended="budget used up")
    report(run_dir)

    (line,) = report("--list", "--runs", run_dir.parent).stdout.splitlines()

    words = line.split("  ")[-2]
    assert words == "Partial (budget used up): 1 of 5 cells is not as expected: CRASH (RuntimeError) instead of PASS"
    assert len(words) < 100


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_on_a_terminal_each_run_is_a_line_of_question_and_one_of_answer(report, make_run, monkeypatch, columns):
    _, run_dir = make_run("threshold")
    report(run_dir)

    question, answer = listed(run_dir.parent, monkeypatch, columns=columns)

    assert question.startswith(run_dir.name)
    whole = "    HANG (deadlock) at n_layers=5, not at n_layers=4"
    assert answer == whole if columns > len(whole) else answer.endswith(" ..") and answer[:-3] in whole
    assert max(len(question), len(answer)) <= columns
    assert question.endswith(" .." if columns < 100 else "does training fail?")


def test_what_a_report_said_before_the_run_went_on_is_not_its_answer(report, make_run, parts):
    _, run_dir = make_run("threshold")
    report(run_dir)
    with RunStore.open(run_dir, clock=parts["clock"]) as store:
        store.add_undo(1)

    (line,) = report("--list", "--runs", run_dir.parent).stdout.splitlines()

    assert line.split("  ")[-2] == "not finished"
