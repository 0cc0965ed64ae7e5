"""Whatever is read from outside, only an error of ours comes out, with an exit code that means wrong use or a bad file.

Sixty inputs of each kind here; 2,000 of each with ``pytest --hypothesis-profile=many``.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from harness.classify.engine import classify
from harness.cli.exit_codes import ExitCode
from harness.cli.main import main
from harness.core.errors import HarnessError
from harness.core.verdict import Case
from harness.observe.devices.parse_recorder import parse_recorder
from harness.report.write import build, form
from harness.spec.matrix import parse_matrix
from harness.spec.questions import parse
from harness.store import fsck, journal, layout
from harness.store.history import evidence_at
from harness.store.run_store import read_run

MATRICES = Path(__file__).parents[2] / "matrices"

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -1, 10**400, 0])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["", "\x1b[2J", "{", "../..", "nan", "1e999", "\u202e", "PASS", "x" * 5000])
)
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
)
EDITS = st.lists(
    st.tuples(st.sampled_from(["put", "drop", "rename", "double"]), st.lists(st.integers(0, 60), min_size=1), ANYTHING),
    min_size=1,
    max_size=4,
)
"""What is done to a place in a tree of values, and where: each number is the way down from one level."""

CUTS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 9), st.binary(max_size=9)), min_size=1, max_size=6)


def edited(tree, edits):
    """A copy of ``tree`` with every edit made."""
    tree = json.loads(json.dumps(tree))
    for what, way, value in edits:
        at, key = tree, None
        for number in way:
            if not isinstance(at, dict | list) or not at:
                break
            keys = list(at) if isinstance(at, dict) else range(len(at))
            above, key = at, keys[number % len(keys)]
            at = at[key]
        if key is None:
            return value
        if what == "drop":
            del above[key]
        elif what == "put" or isinstance(above, list):
            above[key] = value
        elif what == "rename":
            above[f"{key}'"] = above.pop(key)
        else:
            above["again"] = {"again": above[key]}
    return tree


def cut(content: bytes, cuts) -> bytes:
    """``content`` with bytes put in and taken out."""
    for at, length, put in cuts:
        at %= len(content) + 1
        content = content[:at] + put + content[at + length :]
    return content


# --- files that a person writes ------------------------------------------------------------------------------------

FILES = [path.read_bytes() for path in sorted(MATRICES.glob("*.yaml"))]


@given(st.sampled_from(FILES), CUTS)
def test_a_question_or_matrix_file_with_other_bytes(content, cuts):
    text = cut(content, cuts).decode(errors="replace")
    for read in (parse, parse_matrix):
        with suppress(HarnessError):
            read(text, name="file.yaml")


# --- options -------------------------------------------------------------------------------------------------------

# A word of a command line holds no NUL.
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", "-", "--", "n_layers", "n_layers=1..3", "n_layers=3..1", "n_layers=1,,2", "x=1..2", "oom@n_layers>=2", "inf",
     "nan", "-1s", "1e999h", "model.dim=", "model.dim=7", "=", "0", "9" * 400, "\x1b[2J", "a\nb", "/",
     "/dev/null", "latest", "{x}", "{{x}}", "{y}", "commit=a..b", "env:torch=/nope", "(", "*", "true"]
)  # fmt: skip
OPTIONS = st.sampled_from(
    ["--axis", "--fault", "--set", "--stall", "--total", "--startup", "--budget", "--seed", "--certify", "--max-trials",
     "--bad", "--control", "--executor", "--progress", "--success", "--resume", "--format", "--steps", "--only",
     "--list", "--json", "--jobs", "--template", "--salvage", "--limit", "--env", "--to", "--at", "--", "--nope"]
)  # fmt: skip
COMMANDS = st.sampled_from(
    [["bisect", "--dry-run"], ["minimise", "--dry-run"], ["explore", "--dry-run"], ["report"], ["classify"], ["status"],
     ["log"], ["replay"], ["undo"], ["skip"], ["mark"], ["graph"], ["fsck"], ["matrix", "lint"], ["matrix", "show"],
     ["selftest", "--list"], ["run", "--limit"], ["trial"]]
)  # fmt: skip


@given(COMMANDS, st.lists(OPTIONS | WORDS, max_size=6))
def test_options(tmp_path_factory, command, words):
    place = tmp_path_factory.getbasetemp() / "options"
    place.mkdir(exist_ok=True)
    before = Path.cwd()
    os.chdir(place)
    try:
        done = CliRunner().invoke(main, [*command, *words])
    finally:
        os.chdir(before)
    known = {int(code) for code in ExitCode if code is not ExitCode.INTERNAL}
    assert done.exit_code in known | {125, 128}, (command, words, done.output)
    assert done.exception is None or isinstance(done.exception, SystemExit)


# --- what a run keeps ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A real run: a small program that fails from x=2 on."""
    place = tmp_path_factory.mktemp("run")
    (place / "train.py").write_text(
        "import sys\nfor step in (1, 2):\n    print('step', step)\nsys.exit(sys.argv[1] > '1')\n"
    )
    before = Path.cwd()
    os.chdir(place)
    try:
        argv = ["bisect", "--axis", "x=1..2", "--certify", "1", "--control", "none", "--", sys.executable, "-S"]
        done = CliRunner().invoke(main, [*argv, "train.py", "{x}"])
    finally:
        os.chdir(before)
    assert done.exit_code == 0, done.output
    (found,) = (place / "runs").iterdir()
    return found


def is_told_or_read(run_dir: Path) -> None:
    """Reading it, in every form of a report and by fsck, gives a report or an error of ours."""
    fsck.problems(run_dir)
    with suppress(HarnessError):
        run = read_run(run_dir)
        report = build(run, run_dir)
        for name in ("terminal", "md", "json", "junit", "github", "short"):
            form(run, run_dir, name, report=report)


@given(cuts=CUTS)
def test_a_journal_with_other_bytes(run_dir, cuts):
    path = layout.journal(run_dir)
    before = path.read_bytes()
    path.write_bytes(cut(before, cuts))
    try:
        is_told_or_read(run_dir)
    finally:
        path.write_bytes(before)


@given(edits=EDITS, line=st.integers(0, 10**6))
def test_a_journal_whose_lines_prove_themselves_and_hold_other_things(run_dir, edits, line):
    path = layout.journal(run_dir)
    before = path.read_bytes()
    rows = [json.loads(raw) for raw in before.splitlines()]
    at = line % len(rows)
    rows[at]["data"] = edited(rows[at]["data"], edits)
    content = b""
    for number, row in enumerate(rows, start=1):
        event = {key: row[key] for key in ("event", "schema", "wall", "data")}
        content += journal.sealed(event, number=number, before=b"" if number == 1 else None)
    path.write_bytes(content)
    try:
        is_told_or_read(run_dir)
    finally:
        path.write_bytes(before)


@given(edits=EDITS, data=st.data())
def test_evidence_with_other_values(run_dir, tmp_path_factory, edits, data):
    files = sorted(run_dir.glob("trials/*/evidence.json"))
    path = tmp_path_factory.getbasetemp() / "evidence.json"
    path.write_text(json.dumps(edited(json.loads(data.draw(st.sampled_from(files)).read_text()), edits)))
    record = read_run(run_dir).records[0]
    with suppress(HarnessError):
        evidence = evidence_at(path)
        assert evidence is not None
        classify(Case(trial=record.trial, outcome=record.outcome, evidence=evidence))


# --- what torch's flight recorder writes ---------------------------------------------------------------------------

ENTRY = {
    "frames": [{"name": "all_reduce", "filename": "train.py", "line": 7}],
    "process_group": ["0", "default_pg"], "collective_seq_id": 3, "p2p_seq_id": 0, "op_id": 3, "record_id": 2,
    "profiling_name": "nccl:all_reduce", "time_created_ns": 1, "input_sizes": [[4]], "input_dtypes": ["Float"],
    "output_sizes": [[4]], "output_dtypes": ["Float"], "state": "started", "time_discovered_started_ns": 2,
    "time_discovered_completed_ns": None, "retired": False, "timeout_ms": 600000, "is_p2p": False,
}  # fmt: skip
DUMP = {
    "version": "2.5", "entries": [ENTRY, {**ENTRY, "collective_seq_id": 4}],
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 4, "last_started_collective": 4, "last_completed_collective": 3}},
}  # fmt: skip


@given(edits=EDITS, cuts=CUTS | st.just([]), as_json=st.booleans())
def test_a_dump_of_the_flight_recorder(edits, cuts, as_json):
    tree = edited(DUMP, edits)
    data = json.dumps(tree).encode() if as_json else pickle.dumps(tree, protocol=2)
    with suppress(ValueError):
        parse_recorder(cut(data, cuts), t_s=1.0, rank=0, source="pipe")
