"""A journal survives what disks and people do to it, or says exactly where it is broken."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil

import pytest

from harness.core.errors import DamagedError, JournalError, NewerError, NotBegunError, StoreError
from harness.core.evidence import Evidence, LogTail
from harness.store import fsck, journal, layout
from harness.store.files import write_atomic
from harness.store.history import read_evidence
from harness.store.run_store import RunStore, read_run


@pytest.fixture
def three(create, make_record):
    """A closed run with a header and two records."""
    with create() as store:
        store.add_record(make_record(1))
        store.add_record(make_record(2))
    return store.run_dir


def cut(path, *, keep):
    path.write_bytes(path.read_bytes()[:keep])


@pytest.mark.parametrize("garbage", [b'{"event":"reco', b"\0" * 40, b"\xff\xfe\n", b"[]\n", b"nonsense\n"])
def test_a_torn_last_line_is_dropped_and_reported(three, make_record, garbage):
    path = layout.journal(three)
    with path.open("ab") as file:
        file.write(garbage)
    run = read_run(three)
    assert run.records == (make_record(1), make_record(2))
    assert len(run.notes) == 1
    assert "journal line 4 was incomplete" in run.notes[0]
    assert f"{len(garbage)} bytes of it were dropped" in run.notes[0]


def test_every_cut_of_the_journal_reads_as_the_events_before_it(three):
    path = layout.journal(three)
    whole = path.read_bytes()
    ends = [i for i, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        lines, torn = journal.read(path)
        complete = sum(end <= size for end in ends)
        assert len(lines) == complete  # a line that lacks only its newline is whole
        assert (torn is None) == (size in {0, *ends, *(end + 1 for end in ends)})


def test_resuming_cuts_the_torn_line_off_and_keeps_a_copy(three, clock, make_record):
    path = layout.journal(three)
    before = path.read_bytes()
    path.write_bytes(before + b'{"event":"record","sch')
    with RunStore.open(three, clock=clock) as store:
        store.add_record(make_record(3))
    assert (three / "journal.corrupt-1").read_bytes() == b'{"event":"record","sch'
    assert path.read_bytes().startswith(before)
    run = read_run(three)
    assert [record.trial.point.get("n_layers") for record in run.records] == [1, 2, 3]
    assert "kept in journal.corrupt-1" in run.notes[0]


def test_reading_changes_nothing(three):
    path = layout.journal(three)
    with path.open("ab") as file:
        file.write(b"torn")
    before = path.read_bytes()
    read_run(three)
    assert path.read_bytes() == before


def test_a_line_that_lost_only_its_newline_is_whole_and_can_be_continued(three, clock, make_record):
    path = layout.journal(three)
    cut(path, keep=path.stat().st_size - 1)
    with RunStore.open(three, clock=clock) as store:
        assert len(store.records()) == 2
        store.add_record(make_record(3))
    assert len(read_run(three).records) == 3


def test_corruption_in_the_middle_is_refused_with_file_and_line(three, clock):
    path = layout.journal(three)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:50] + b"\n" + lines[2])
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"journal\.jsonl:2: not JSON"):
        RunStore.open(three, clock=clock)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 99}, r"journal\.jsonl:3: written by a newer version: schema 99"),
        ({"event": "recrod"}, r"journal\.jsonl:3: unknown event 'recrod'; did you mean 'record'"),
        ({"data": 3}, r"journal\.jsonl:3: an event needs"),
        ({"data": {}}, r"journal\.jsonl:3: record event: lacks 'record'"),
        ({"data": {"record": {"trail": 1}}}, r"journal\.jsonl:3: record event: .*'trail'; did you mean 'trial'"),
    ],
)
def test_a_last_line_that_is_whole_but_wrong_is_not_dropped(three, change, message):
    path = layout.journal(three)
    *lines, last = path.read_bytes().splitlines(keepends=True)
    said = {key: value for key, value in json.loads(last).items() if key not in ("seq", "sum")}
    path.write_bytes(b"".join(lines) + journal.sealed({**said, **change}, number=3, before=None))
    with pytest.raises(JournalError, match=message):
        read_run(three)


def test_a_journal_of_a_newer_version_is_left_alone_and_nobody_is_told_to_begin_again(three, clock):
    path = layout.journal(three)
    *lines, last = path.read_bytes().splitlines(keepends=True)
    said = {key: value for key, value in json.loads(last).items() if key not in ("seq", "sum")}
    path.write_bytes(b"".join(lines) + journal.sealed({**said, "schema": 2}, number=3, before=None))
    before = path.read_bytes()
    _is_left_alone(three, clock)
    assert path.read_bytes() == before


def test_a_journal_every_line_of_which_names_a_newer_version_is_left_alone_also_where_no_checksum_holds(three, clock):
    path = layout.journal(three)
    path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":99'))
    before = path.read_bytes()
    _is_left_alone(three, clock)
    assert path.read_bytes() == before
    assert [file.name for file in three.glob("journal*")] == ["journal.jsonl"]


def test_one_line_that_names_a_newer_version_and_is_not_as_it_was_written_is_damage(three, clock):
    path = layout.journal(three)
    path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":9', 1))
    assert len(fsck.problems(three)) == 1
    assert fsck.salvage(three, clock=clock, accept=False)[1] == 1


def _is_left_alone(run_dir, clock):
    uses = (
        lambda: read_run(run_dir),
        lambda: RunStore.open(run_dir, clock=clock),
        lambda: fsck.problems(run_dir),
        lambda: fsck.salvage(run_dir, clock=clock, accept=False),
        lambda: fsck.salvage(run_dir, clock=clock, accept=True),
    )
    for use in uses:
        with pytest.raises(NewerError, match="written by a newer version") as told:
            use()
        assert "newer" in told.value.help
        assert "afresh" not in told.value.help


def test_a_disk_that_fills_up_in_the_middle_of_a_line_loses_only_that_event(create, make_record, monkeypatch):
    real_write = os.write

    def full(descriptor, data):
        if len(data) > 100:
            return real_write(descriptor, data[:100])  # what fitted
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with create() as store:
        store.add_record(make_record(1))
        before = layout.journal(store.run_dir).read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(journal.os, "write", lambda d, raw: full(d, raw) if len(raw) > 300 else full(d, b""))
            with pytest.raises(StoreError) as caught:
                store.add_record(make_record(2))
        assert layout.journal(store.run_dir).read_bytes() == before
        message = str(caught.value)
        assert str(layout.journal(store.run_dir)) in message
        assert "No space left on device" in message
        assert "MB and" in message
        assert "with every event before this one" in message
        assert "--resume" in caught.value.help
        assert store.records() == (make_record(1),)
        store.add_record(make_record(2))  # space again
    assert len(read_run(store.run_dir).records) == 2


@pytest.mark.parametrize("allowed", range(4), ids=["spec", "machine", "name of the journal", "journal"])
def test_a_disk_that_is_full_before_anything_was_begun_leaves_nothing_and_does_not_speak_of_resuming(
    create, tmp_path, monkeypatch, allowed
):
    real_fsync, done = os.fsync, []

    def full(descriptor):
        done.append(descriptor)
        if len(done) > 2 * allowed:  # the file's, and its folder's
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real_fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(NotBegunError) as caught:
            create()
    assert "--resume" not in f"{caught.value} {caught.value.help}"
    assert "Nothing was begun" in caught.value.help
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    create().close()  # space again


def test_a_line_that_could_not_be_taken_back_is_taken_back_later(create, make_record, monkeypatch):
    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with create() as store:
        with monkeypatch.context() as patch:
            patch.setattr(journal.os, "fsync", broken)
            patch.setattr(journal.os, "ftruncate", broken)
            with pytest.raises(StoreError, match=r"Input/output error.*cut off on --resume") as caught:
                store.add_record(make_record(1))
        assert "Copy the run directory elsewhere" in caught.value.help
        assert store.records() == ()
        store.add_record(make_record(2))
    assert read_run(store.run_dir).records == (make_record(2),)


def test_a_journal_that_somebody_cuts_during_the_run_is_told_and_what_stands_can_be_read(create, make_record):
    with create() as store:
        store.add_record(make_record(1))
        path = layout.journal(store.run_dir)
        stood = path.read_bytes()
        store.add_record(make_record(2))
        path.write_bytes(stood)
        with pytest.raises(StoreError, match="somebody else has cut it"):
            store.add_record(make_record(3))

    assert read_run(store.run_dir).records == (make_record(1),)
    assert path.read_bytes() == stood


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "evidence.json"
    write_atomic(path, "old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(StoreError, match="the file as it was before is unchanged"):
            write_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def finished(create, make_record):
    """A closed run with an answer, and what a report says of it."""
    with create() as store:
        for value in (1, 2, 3):
            store.add_start(make_record(value).trial)
            store.write_evidence(make_record(value).trial.key, Evidence(steps_wanted=8))
            store.add_record(make_record(value))
        store.add_end(why="answered", seconds=4.5)
    return store.run_dir


def told(run_dir, before) -> bool:
    """Whether damage is told: by an error that names the place, by a note, or by a run that has no end."""
    try:
        run = read_run(run_dir)
    except StoreError as error:
        return "journal.jsonl:" in str(error) or ".json: " in str(error)
    return run.ended != before.ended or len(run.notes) > len(before.notes)


def test_a_changed_bit_anywhere_in_a_run_is_told_or_harmless(finished):
    before = read_run(finished)
    for path in (layout.journal(finished), layout.spec(finished), layout.machine(finished)):
        whole = path.read_bytes()
        for at in range(0, len(whole), 17):
            changed = bytearray(whole)
            changed[at] ^= 1 << (at % 8)
            path.write_bytes(changed)
            assert told(finished, before) or read_run(finished) == before, (
                path.name,
                at,
                bytes(changed[at - 9 : at + 9]),
            )
        path.write_bytes(whole)


def test_every_lost_doubled_and_moved_line_is_told(finished):
    path, before = layout.journal(finished), read_run(finished)
    lines = path.read_bytes().splitlines(keepends=True)
    for i in range(len(lines)):
        path.write_bytes(b"".join(lines[:i] + lines[i + 1 :]))
        assert told(finished, before), f"line {i + 1} lost"
        path.write_bytes(b"".join(lines[: i + 1] + lines[i:]))
        assert told(finished, before), f"line {i + 1} doubled"
        for j in range(i):
            moved = [*lines]
            moved[i], moved[j] = moved[j], moved[i]
            path.write_bytes(b"".join(moved))
            assert told(finished, before), f"lines {j + 1} and {i + 1} changed places"


def test_changed_evidence_is_found(finished, make_record):
    assert fsck.problems(finished) == []
    path = layout.evidence(layout.trial(finished, make_record(2).trial.key))
    path.write_text(path.read_text().replace('"steps_wanted": 8', '"steps_wanted": 9'))

    (problem,) = fsck.problems(finished)
    assert str(path) in problem
    with pytest.raises(DamagedError, match="it is not as it was written"):
        read_evidence(finished, make_record(2).trial.key)


def with_output(store, record, *, log="beginning and end\n"):
    """A trial of ``store`` with what it printed, as a session leaves it."""
    folder = store.add_start(record.trial)
    layout.output(folder, "stdout").write_text(log)
    own = LogTail(id="log-stdout", stream="stdout", text=log, size_bytes=len(log))
    others = LogTail(id="log-77-stderr", stream="stderr", text="of a file of its own", size_bytes=20)
    store.write_evidence(record.trial.key, Evidence(steps_wanted=8, logs=(own, others)))
    store.add_record(record)


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("", "it is missing, with all that was seen of this trial"),
        ("evidence.json", "it is missing"),
        ("stdout.txt", "it is missing"),
    ],
)
@pytest.mark.parametrize("is_reused", [False, True])
def test_what_is_missing_of_a_trial_is_named(create, make_record, file, what, is_reused):
    record = make_record(1)
    with create() as store:
        with_output(store, record)
    if is_reused:
        with create() as later:
            later.add_reuse(dataclasses.replace(record, run=store.run_dir.name))
    run_dir = later.run_dir if is_reused else store.run_dir
    assert fsck.problems(run_dir) == []

    path = layout.trial(run_dir, record.trial.key) / file
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert fsck.problems(run_dir) == [f"{path}: {what}"]


def test_output_that_was_cut_is_named_and_more_of_it_than_was_read_is_not(create, make_record):
    with create() as store:
        with_output(store, make_record(1))
    path = layout.output(layout.trial(store.run_dir, make_record(1).trial.key), "stdout")
    path.write_text("beginning and end\nand what came last\n")
    assert fsck.problems(store.run_dir) == []
    path.write_text("beginning\n")
    assert fsck.problems(store.run_dir) == [f"{path}: it is not as it was written: 10 of 18 bytes are there"]


def test_of_a_trial_without_evidence_nothing_is_missing(three):
    assert fsck.problems(three) == []


def of_an_older_version(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["data"].pop("files", None)
        row["data"].pop("evidence", None)
    plain = [{key: row[key] for key in ("event", "schema", "wall", "data")} for row in rows]
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in plain))


def test_a_journal_of_an_older_version_is_read_and_what_is_added_proves_it(finished, clock, make_record):
    path, before = layout.journal(finished), read_run(finished)
    of_an_older_version(path)
    assert read_run(finished) == before
    assert fsck.problems(finished) == []

    with RunStore.open(finished, clock=clock) as store:
        store.add_record(make_record(4))
    assert len(read_run(finished).records) == 4
    assert fsck.problems(finished) == []
    path.write_bytes(path.read_bytes().replace(b'"good"', b'"baad"', 1))
    (problem,) = fsck.problems(finished)
    assert "journal.jsonl:9: the lines before it are not as they were written" in problem


def test_what_stands_of_a_damaged_journal_is_saved_and_the_rest_is_asked_again(finished, clock, make_record):
    path = layout.journal(finished)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4]) + lines[4].replace(b'"good"', b'"bad!"') + b"".join(lines[5:]))
    with pytest.raises(DamagedError, match=r"journal\.jsonl:5: .*checksum"):
        read_run(finished)

    kept, left_out, copy = fsck.salvage(finished, clock=clock, accept=False)

    assert (kept, left_out) == (6, 2)  # the record, and the answer that counted it
    assert fsck.problems(finished) == []
    run = read_run(finished)
    assert [record.trial.point.get("n_layers") for record in run.records] == [1, 3]
    assert run.ended == "not finished"
    assert copy in run.notes[0]
    assert lines[4].replace(b'"good"', b'"bad!"') in (finished / copy).read_bytes()
    with RunStore.open(finished, clock=clock) as store:
        assert [trial.point.get("n_layers") for trial in store.started_not_finished()] == [2]
