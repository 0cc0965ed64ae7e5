"""The run directory keeps every finished trial, and says so when it cannot."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest

from harness.core.boundary import Boundary, Finding
from harness.core.campaign import CampaignAnswer
from harness.core.errors import JournalError, NoOpenRunError, RunBusyError, SeveralOpenError, SpecError, StoreError
from harness.core.evidence import Evidence, LogTail
from harness.core.invocation import Invocation
from harness.core.point import Point
from harness.core.ports import CellRequest
from harness.store import layout
from harness.store.history import read_evidence
from harness.store.run_store import RunStore, find_latest, find_to_resume, read_run
from harness.store.shelf import list_runs


def test_a_record_comes_back_as_it_was_written(create, make_record):
    with create() as store:
        store.add_start(make_record(4).trial)
        store.add_record(make_record(4))
        assert store.records() == (make_record(4),)
    assert read_run(store.run_dir).records == (make_record(4),)


def test_a_new_run_knows_its_question_machine_code_and_command(create, spec, machine):
    with create() as store:
        run = store.run()
    assert (run.spec, run.machine, run.code) == (spec, machine, "0.1+abc")
    assert run.argv == ("nsa-harness", "bisect", "--axis", "n_layers")
    assert run.id == "20260102-030405-n_layers"
    assert run.started_at == "2026-01-02T03:04:05.000Z"
    assert (run.records, run.boundary, run.ended) == ((), None, "not finished")


@pytest.mark.parametrize("name", ["machine.json", "spec.json", "journal.jsonl"])
def test_what_a_program_that_is_still_deleting_takes_is_put_back_at_the_next_line(create, make_record, name):
    with create() as store:
        store.add_record(make_record(4))
        (store.run_dir / name).unlink()
        store.add_note("a line")
    run = read_run(store.run_dir)
    assert run.records == (make_record(4),)
    assert any("was deleted while the run went on" in note for note in run.notes)


def test_two_runs_in_the_same_second_get_two_folders(create):
    with create() as first, create() as second:
        assert second.run_dir.name == first.run_dir.name + "-2"


def test_the_end_gives_answer_reason_and_seconds(create, clock):
    boundary = Boundary(axis="n_layers", finding=Finding.THRESHOLD, last_good=4, first_bad=5)
    with create() as store:
        clock.sleep(12)
        store.add_end(why="answered", seconds=12.0, answer=CampaignAnswer(boundary=boundary))
    run = read_run(store.run_dir)
    assert (run.boundary, run.ended, run.seconds) == (boundary, "answered", 12.0)


def test_seconds_of_a_cut_off_session_are_those_it_was_seen_at_work(create, clock):
    with create() as store:
        clock.sleep(7)
        store.add_note("still here")
    clock.sleep(1000)  # nobody works
    with RunStore.open(store.run_dir, clock=clock) as again:
        clock.sleep(5)
        again.add_end(why="answered", seconds=5.0)
        assert again.run().seconds == pytest.approx(12.0)


def test_a_trial_that_was_running_when_the_controller_died_is_named(create, make_record, clock):
    with create() as store:
        store.add_start(make_record(1).trial)
        store.add_record(make_record(1))
        store.add_start(make_record(2).trial)
    with RunStore.open(store.run_dir, clock=clock) as again:
        assert again.started_not_finished() == (make_record(2).trial,)
        assert again.records() == (make_record(1),)


def test_what_a_cut_off_attempt_left_behind_does_not_reach_the_next_one(create, make_trial, clock):
    with create() as store:
        folder = store.add_start(make_trial(2))
        layout.heartbeat(folder).write_text("old marks\n")
    with RunStore.open(store.run_dir, clock=clock) as again:
        assert list(again.add_start(make_trial(2)).iterdir()) == []
    assert layout.heartbeat(folder.with_name(folder.name + ".interrupted-1")).read_text() == "old marks\n"


def test_work_after_an_end_makes_the_run_unfinished_again(create, make_trial, clock):
    with create() as store:
        store.add_end(why="interrupted by the user", seconds=1.0)
    assert read_run(store.run_dir).ended == "interrupted by the user"
    with RunStore.open(store.run_dir, clock=clock):
        pass
    assert read_run(store.run_dir).ended == "not finished"


def test_every_line_is_a_json_object_with_event_schema_and_time(create, make_record):
    with create() as store:
        store.add_decision(CellRequest(cell=Point.of({"n_layers": 1}), role="search", reason="smallest"))
        store.add_record(make_record())
        store.add_note("a\nnote")
    lines = [json.loads(line) for line in layout.journal(store.run_dir).read_text().splitlines()]
    assert [line["event"] for line in lines] == ["header", "decision", "record", "note"]
    assert all(line["schema"] == 1 and line["wall"].endswith("Z") for line in lines)


def test_a_second_controller_is_refused_with_the_pid_of_the_first(create, clock):
    with create() as store, pytest.raises(RunBusyError, match=f"in use by PID {os.getpid()}"):
        RunStore.open(store.run_dir, clock=clock)


def test_reading_needs_no_lock(create, make_record):
    with create() as store:
        store.add_record(make_record())
        assert read_run(store.run_dir).records == (make_record(),)


def test_resuming_on_other_code_or_another_machine_is_refused(create, machine, clock):
    with create() as store:
        pass
    with pytest.raises(JournalError, match=r"code: was 0\.1\+abc, now 0\.2"):
        RunStore.open(store.run_dir, clock=clock, code="0.2")
    with pytest.raises(JournalError, match=r"machine: was .* now "):
        RunStore.open(store.run_dir, clock=clock, machine=dataclasses.replace(machine, cores=64))
    RunStore.open(store.run_dir, clock=clock, machine=machine).close()  # and the lock was given back


@pytest.mark.parametrize(("now", "noted"), [("aa", False), ("", False), ("bb", True)])
def test_that_a_run_goes_on_with_another_commit_of_the_program_is_noted(create, clock, now, noted):
    with create(program="aa") as store:
        run_dir = store.run_dir
    with RunStore.open(run_dir, clock=clock, program=now) as store:
        notes = store.run().notes
    assert [note.startswith("Begun on the program's commit aa and taken up again on bb") for note in notes] == [
        True
    ] * noted


def test_the_same_sources_under_another_commit_may_be_resumed(create, clock):
    with create(code="0.1+abc (1111 with uncommitted changes)") as store:
        pass
    RunStore.open(store.run_dir, clock=clock, code="0.1+abc (2222)").close()
    with pytest.raises(JournalError, match="code: was"):
        RunStore.open(store.run_dir, clock=clock, code="0.1+abd (2222)")


def test_evidence_is_kept_whole(create):
    evidence = Evidence(steps_wanted=3, logs=(LogTail(id="log-stderr", stream="stderr", text="x", size_bytes=1),))
    with create() as store:
        assert store.read_evidence("k") is None
        store.write_evidence("k", evidence)
        assert store.read_evidence("k") == evidence
    assert [path.name for path in layout.trial(store.run_dir, "k").iterdir()] == ["evidence.json"]


def test_damaged_evidence_is_an_error_with_its_path(create):
    with create() as store:
        store.write_evidence("k", Evidence(steps_wanted=3))
        path = layout.evidence(layout.trial(store.run_dir, "k"))
        path.write_text('{"steps_wanted": 3, "stepz": 1}')
        with pytest.raises(JournalError, match=r"evidence\.json: .*unknown key 'stepz'"):
            read_evidence(store.run_dir, "k")


def test_the_latest_run_is_found_and_unreadable_ones_are_listed_with_the_reason(create, clock, tmp_path):
    with create() as first:
        pass
    clock.sleep(60)
    with create() as second:
        pass
    first_dir = first.run_dir.rename(first.run_dir.with_name("zzz-renamed"))  # names do not decide, times do
    assert find_latest(tmp_path / "runs") == second.run_dir
    layout.spec(first_dir).write_text("{")
    assert find_latest(tmp_path / "runs") == second.run_dir
    listed = [str(summary) for summary in list_runs(tmp_path / "runs")]
    assert listed[0] == f"{second.run_dir.name}     0 trials  not finished  {second.spec.question}"
    assert listed[1].startswith("zzz-renamed  cannot be read: ")
    problems = {summary.directory: summary.problem for summary in list_runs(tmp_path / "runs")}
    assert problems[second.run_dir] == ""
    assert "spec.json: not JSON" in problems[first_dir]


BISECT = Invocation(verb=("bisect",), options=(("--axis", "n_layers"),))


def test_an_older_run_that_never_ended_and_asks_the_same_makes_it_unclear_which_is_gone_on_with(create, clock):
    with create() as older:
        pass
    clock.sleep(60)
    with create() as last:
        pass
    with pytest.raises(SeveralOpenError, match=rf"{older.run_dir.name} is older, asks the same and never ended"):
        find_to_resume(last.run_dir.parent, BISECT)


def test_what_has_come_to_its_end_is_not_gone_on_with_the_older_run_that_has_not_is(create, clock):
    with create() as older:
        older.add_end(why="interrupted", seconds=1.0)
    clock.sleep(60)
    with create() as last:
        last.add_end(why="answered", seconds=1.0)
    assert find_to_resume(last.run_dir.parent, BISECT) == older.run_dir


def test_the_last_run_is_gone_on_with_where_older_ones_have_ended_or_ask_something_else(create, clock, spec):
    with create() as older:
        older.add_end(why="interrupted", seconds=1.0)
    with create(spec=dataclasses.replace(spec, question="Another one?")):
        pass
    clock.sleep(60)
    with create() as last:
        pass
    assert find_to_resume(last.run_dir.parent, BISECT) == last.run_dir


def matrix_run(file="a.yaml", *, program=(), options=()):
    return Invocation(verb=("matrix", "run"), operands=(file,) if file else (), command=program, options=options)


@pytest.mark.parametrize(
    "other",
    [
        Invocation(verb=("watch",), operands=("4242",)),
        Invocation(verb=("run",), command=("python", "train.py")),
        Invocation(verb=("bisect",), operands=("a.yaml",)),
        matrix_run("b.yaml"),
        matrix_run("", program=("python", "other.py")),
        matrix_run(options=(("--repeat", "3"),)),
    ],
)
def test_a_later_run_of_something_else_is_not_gone_on_with(create, clock, other):
    mine = matrix_run(options=(("--repeat", "2"),))
    asked = mine if other.options else matrix_run()
    with create(invocation=mine) as older:
        older.add_end(why="interrupted", seconds=1.0)
    clock.sleep(60)
    with create(invocation=other) as last:
        last.add_end(why="interrupted", seconds=1.0)
    assert find_to_resume(last.run_dir.parent, asked) == older.run_dir


def test_where_nothing_can_be_gone_on_with_the_last_runs_are_named_with_their_commands(create):
    with create(invocation=Invocation(verb=("watch",), operands=("4242",))) as watched:
        watched.add_end(why="interrupted", seconds=1.0)
    with pytest.raises(NoOpenRunError) as error:
        find_to_resume(watched.run_dir.parent, matrix_run())
    assert f"{watched.run_dir.name}: interrupted, begun by `nsa-harness watch 4242`" in str(error.value)
    assert "--resume RUN" in error.value.help


def test_no_run_at_all_says_how_to_begin_one(tmp_path):
    with pytest.raises(StoreError, match="nsa-harness bisect"):
        find_latest(tmp_path)


def test_a_folder_that_is_no_run_is_refused_and_left_alone(tmp_path, clock):
    with pytest.raises(StoreError, match="is not there"):
        RunStore.open(tmp_path / "nothing", clock=clock)
    with pytest.raises(StoreError, match="not a run directory"):
        read_run(tmp_path)
    assert list(tmp_path.iterdir()) == []


def with_env(spec, env, **changes):
    base = dataclasses.replace(spec.matrix.base, env=env)
    return dataclasses.replace(spec, matrix=dataclasses.replace(spec.matrix, base=base, **changes))


def test_secrets_never_reach_the_disk(create, spec, make_record):
    secret = "hf_0123456789"
    env = (("HF_TOKEN", secret), ("OMP_NUM_THREADS", "1"))
    record = make_record(1, env=env)
    asked = with_env(spec, env, command=("python", "t.py", f"--env=HF_TOKEN={secret}"))
    with create(spec=asked, argv=("nsa-harness", "bisect", "--env", f"HF_TOKEN={secret}")) as store:
        store.add_start(record.trial)
        store.add_record(record)
        store.add_note(f"the program printed {secret}")
        log = LogTail(id="log-stdout", stream="stdout", text=f"using {secret}", size_bytes=20)
        store.write_evidence(record.trial.key, Evidence(steps_wanted=1, logs=(log,)))
    written = [path for path in store.run_dir.rglob("*") if path.is_file()]
    assert len(written) >= 4
    assert [path for path in written if secret in path.read_text()] == []
    assert "OMP_NUM_THREADS" in layout.spec(store.run_dir).read_text()


def test_a_resumed_run_finds_its_trials_although_their_secrets_were_hidden(create, spec, make_record, clock):
    env = (("API_KEY", "0123456789"),)
    record = make_record(1, env=env)
    asked = with_env(spec, env)
    with create(spec=asked) as store:
        store.add_record(record)
    with RunStore.open(store.run_dir, clock=clock) as again:
        assert [one.trial.key for one in again.records()] == [record.trial.key]


def test_a_secret_reaches_the_trials_of_a_run_and_no_file_and_is_asked_for_when_it_goes_on(create, spec, clock):
    secret = with_env(spec, (("HF_TOKEN", "abcdefgh123"), ("OMP_NUM_THREADS", "1")))
    with create(spec=secret) as store:
        assert store.spec.matrix.base.env == secret.matrix.base.env
        assert dict(store.run().spec.matrix.base.env)["HF_TOKEN"] == "<hidden>"
    assert not any(b"abcdefgh123" in path.read_bytes() for path in store.run_dir.rglob("*") if path.is_file())
    with RunStore.open(store.run_dir, clock=clock) as again:
        with pytest.raises(SpecError, match=r"HF_TOKEN=\.\. nsa-harness"):
            again.recall({})
        again.recall({"HF_TOKEN": "abcdefgh123", "OTHER": "x"})
        assert again.spec == secret
