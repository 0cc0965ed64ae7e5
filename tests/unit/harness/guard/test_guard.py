"""The guard: when it looks, what it tells, once, and what survives its own death."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from threading import Thread

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from harness.cli.main import main
from harness.cluster.onlook import NoSlurmJobError
from harness.guard import jobs
from harness.guard.guard import Guard, GuardedError, Ledger, cannot_see, look_into
from harness.guard.jobs import Guarded
from harness.guard.policy import CONFIRM_S, LONGEST_S, QUIET_S, Look, Vigil, What, may_end
from harness.guard.receivers import Message, Metrics, ReceiverError, address
from harness.observe.proc import Proc
from harness.testing.executors import await_

TICK = 10.0
HUNG = Message(id="7-1-1-hang", what=What.HANG, title="HANG (deadlock): process 7", body="python train.py")
WORKS = Look(kind="UNRESOLVED", cause="moving", confidence="low", because="it works")
UNSEEN = Look(kind="UNRESOLVED", cause="may-go-on", confidence="low", because="too little was seen")
BLIND = Look(
    kind="UNRESOLVED", cause="may-go-on", confidence="low", because="?", blind_reason="py-spy is not installed"
)
HANGS = Look(kind="HANG", cause="deadlock", confidence="high", because="nothing moves", run="")


def played(states, *, routine_s=900.0):
    """Every look and event of a job: ``states`` says at each tick whether it computes and what a look would say."""
    vigil = Vigil(routine_s=routine_s, began_s=0.0)
    looks, events, used = [], [], 0.0
    for tick, (computes, look) in enumerate(states):
        now = TICK * tick
        used += TICK if computes else 0.0
        vigil.pulse(now, {7: used})
        if vigil.is_due(now):
            looks.append(now)
            if (what := vigil.looked(now, look)) is not None:
                events.append((now, what))
    return looks, events


def test_a_hang_is_told_once_when_two_looks_agree():
    looks, events = played([(True, WORKS)] * 30 + [(False, HANGS)] * 10_000)
    assert [what for _, what in events] == [What.HANG]
    told_after = events[0][0] - 30 * TICK
    assert QUIET_S <= told_after <= QUIET_S + CONFIRM_S + 2 * TICK
    assert len(looks) < 80, "what stays as it is is looked into ever more rarely"


def test_one_look_that_says_hang_is_nobodys_business():
    states = [(False, WORKS)] * 3 + [(False, HANGS)] + [(True, WORKS)] * 1000
    assert played(states)[1] == []


def test_a_job_that_goes_on_is_told_of_and_may_hang_again():
    once = [(True, WORKS)] * 20 + [(False, HANGS)] * 200
    _, events = played(once + once + [(True, WORKS)] * 20)
    assert [what for _, what in events] == [What.HANG, What.GOES_ON, What.HANG, What.GOES_ON]


def test_one_look_that_saw_too_little_does_not_end_a_hang_and_two_do():
    hang = [(True, WORKS)] * 20 + [(False, HANGS)] * 20
    assert [what for _, what in played([*hang, *[(False, UNSEEN)] * 2, *[(False, HANGS)] * 200])[1]] == [What.HANG]
    assert [what for _, what in played([*hang, *[(False, UNSEEN)] * 200])[1]] == [What.HANG, What.GOES_ON]


def test_of_a_job_that_cannot_be_looked_into_that_is_told_once_and_nothing_is_taken_back():
    hang = [(True, WORKS)] * 20 + [(False, HANGS)] * 20
    assert [what for _, what in played([(False, BLIND)] * 9 + [(True, WORKS)] * 200 + [(False, BLIND)] * 200)[1]] == [
        What.BLIND
    ]
    assert [what for _, what in played([*hang, *[(False, BLIND)] * 200])[1]] == [What.HANG, What.BLIND]
    assert played([(True, WORKS)] * 20 + [(False, BLIND)] * 4 + [(False, UNSEEN)] * 200)[1] == []


@pytest.fixture
def waits():
    """A process that waits for a line, and answers with one."""
    code = "print(1, flush=True)\nfor _ in open(0): print(1, flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        answered(process)
        yield process
        process.kill()


def answered(process):
    process.stdout.readline()
    await_(lambda: Proc().state(process.pid) == "S", "it does not wait again")


def test_a_job_of_which_no_thread_has_run_is_looked_into_twice_and_then_each_half_hour(tmp_path, waits):
    guard = guarding(tmp_path, waits, look=UNSEEN, heard=Heard())
    ticks(guard, 160)  # 27 minutes
    assert guard.looks == 2
    ticks(guard, 60)
    assert guard.looks == 3


def test_a_job_that_has_run_since_is_looked_into_again_though_it_used_next_to_no_cpu(tmp_path, waits):
    guard = guarding(tmp_path, waits, look=UNSEEN, heard=Heard())
    ticks(guard, 20)
    assert guard.looks == 2
    waits.stdin.write(b"\n")
    waits.stdin.flush()
    answered(waits)
    ticks(guard, 60)
    assert guard.looks == 3


def test_a_hang_that_computes_is_found_by_the_routine():
    _, events = played([(True, WORKS)] * 100 + [(True, HANGS)] * 400)
    ((told_s, what),) = events
    assert what is What.HANG
    assert told_s - 1000.0 <= 900.0 + CONFIRM_S + 2 * TICK


@given(st.lists(st.tuples(st.integers(1, 300), st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_whatever_happens_hangs_and_their_ends_take_turns(parts):
    states = [(computes, HANGS if hangs else WORKS) for ticks, computes, hangs in parts for _ in range(ticks)]
    looks, events = played(states)
    told = [what for _, what in events]
    assert told == [What.HANG, What.GOES_ON] * (len(told) // 2) + [What.HANG] * (len(told) % 2)
    assert all(later - earlier <= LONGEST_S + TICK for earlier, later in pairwise(looks))
    assert len(looks) <= 3 + sum(ticks * TICK / CONFIRM_S for ticks, *_ in parts)


@pytest.mark.parametrize(("confidence", "may"), [("proof", True), ("high", True), ("medium", False), ("low", False)])
def test_only_what_is_certain_may_end_a_job(confidence, may):
    assert may_end(Look(kind="HANG", cause="deadlock", confidence=confidence, because="")) is may
    assert not may_end(Look(kind="SLOW", cause="", confidence=confidence, because=""))


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self):
        self.t = 0.0

    def now(self):
        return self.t

    def wall(self):
        return f"2026-01-01T00:00:{self.t:09.3f}Z"

    def sleep(self, seconds):
        self.t += seconds


class Heard:
    """A receiver that refuses the first ``deaf`` messages."""

    def __init__(self, deaf=0):
        self.name, self.deaf, self.titles, self.bodies = "json-1", deaf, [], []

    def tell(self, message):
        self.deaf -= 1
        if self.deaf >= 0:
            return False
        self.titles.append(message.title)
        self.bodies.append(message.body)
        return True


@pytest.fixture
def asleep():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]) as process:
        yield process
        process.kill()


def guarding(folder, process, *, look, heard, end=False, began_s=0.0):
    ledger = Ledger.open(folder)
    guard = Guard(
        ledger=ledger, receivers=[heard], metrics=Metrics(), clock=Clock(), look=lambda job: look, host="gpu7",
        report=lambda look: None, say=lambda text: None, end=end, routine_s=900.0,
    )  # fmt: skip
    guard.clock.t = began_s
    guard.remember()
    if process is not None:
        guard.guard(jobs.job_of(process.pid))
    return guard


def ticks(guard, number):
    for _ in range(number):
        guard.tick()
        guard.clock.sleep(TICK)


def test_a_receiver_that_was_deaf_hears_of_a_hang_later_and_once(tmp_path, asleep):
    heard = Heard(deaf=5)
    guard = guarding(tmp_path, asleep, look=replace(HANGS, rank=1), heard=heard)
    ticks(guard, 100)
    assert heard.titles == [f"HANG (deadlock): process {asleep.pid} on gpu7, rank 1"]
    assert guard.deliveries == []
    assert heard.bodies[0].endswith(f"incident {asleep.pid}-{next(iter(guard.vigils)).started}-1-hang")


def test_a_guard_that_was_killed_loses_nothing_and_repeats_nothing(tmp_path, asleep):
    first = guarding(tmp_path, asleep, look=HANGS, heard=Heard(deaf=10_000))
    ticks(first, 20)
    first.ledger.close()  # as the kernel does when it is killed
    heard = Heard()
    second = guarding(tmp_path, asleep, look=HANGS, heard=heard)
    ticks(second, 100)
    second.ledger.close()
    third = guarding(tmp_path, asleep, look=HANGS, heard=heard)
    ticks(third, 100)
    assert len(heard.titles) == 1
    asleep.kill()
    asleep.wait()
    ticks(third, 1)
    assert heard.titles[1] == f"process {asleep.pid} on gpu7 has ended: hang 1 of it is over"
    assert third.vigils == {}


def test_a_guard_without_eyes_says_so_once_with_what_to_install_also_when_it_is_started_again(tmp_path, asleep):
    heard = Heard()
    for _ in range(2):
        guard = guarding(tmp_path, asleep, look=BLIND, heard=heard)
        ticks(guard, 100)
        guard.ledger.close()
    assert heard.titles == [f"process {asleep.pid} on gpu7 cannot be looked into: a hang of it may not be told"]
    assert "no stack was seen: py-spy is not installed" in heard.bodies[0]


@pytest.mark.parametrize(("dead_s", "told"), [(30.0, True), (3600.0, False)])
def test_a_look_of_a_guard_that_was_killed_is_the_first_of_two_if_it_was_not_long_ago(tmp_path, asleep, dead_s, told):
    heard = Heard()
    first = guarding(tmp_path, asleep, look=HANGS, heard=heard)
    ticks(first, 5)
    assert first.looks == 1
    first.ledger.close()
    second = guarding(tmp_path, asleep, look=HANGS, heard=heard, began_s=first.clock.t + dead_s)
    ticks(second, 1 if told else 5)
    assert second.looks == 1
    assert heard.titles == [f"HANG (deadlock): process {asleep.pid} on gpu7"] * told


def test_a_look_that_was_taken_back_before_a_guard_was_killed_is_no_first_of_two(tmp_path, asleep):
    heard = Heard()
    first = guarding(tmp_path, asleep, look=HANGS, heard=heard)
    ticks(first, 5)
    first.look = lambda job: WORKS
    ticks(first, 5)
    first.ledger.close()
    second = guarding(tmp_path, asleep, look=HANGS, heard=heard, began_s=first.clock.t)
    ticks(second, 5)
    assert second.looks == 1
    assert heard.titles == []


def test_a_hang_is_told_before_its_report_is_written(tmp_path, asleep):
    heard = Heard()
    guard = guarding(tmp_path, asleep, look=HANGS, heard=heard)
    guard.report = lambda look: heard.titles.append("report")
    ticks(guard, 20)
    assert heard.titles == [f"HANG (deadlock): process {asleep.pid} on gpu7", "report"]


@pytest.mark.parametrize(("refused", "sent"), [("", 1), ("Access denied", 0)])
def test_slurm_is_asked_to_end_its_job_and_believed_only_if_it_does(tmp_path, monkeypatch, refused, sent):
    answer = subprocess.CompletedProcess([], bool(refused), "", refused)
    monkeypatch.setattr("harness.guard.guard.subprocess.run", lambda *_, **__: answer)
    guard, said = guarding(tmp_path, None, look=HANGS, heard=Heard()), []
    guard.say = said.append
    guard._end(Guarded(pid=0, started=17, command="srun"), Vigil(began_s=0.0))
    assert sum(event["event"] == "sent SIGTERM" for event in guard.ledger.events()) == sent
    assert len(said) == 1
    assert refused in said[0]


def test_what_is_missing_to_see_stacks_is_named(monkeypatch):
    assert cannot_see() == ""
    monkeypatch.setattr("harness.guard.guard.find_tool", lambda name: None)
    assert cannot_see().endswith("-m pip install py-spy")


def test_a_hang_is_still_over_when_it_was_told_last_that_nothing_can_be_seen(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]) as process:
        heard = Heard()
        first = guarding(tmp_path, process, look=HANGS, heard=heard)
        ticks(first, 20)
        first.look = lambda job: BLIND
        ticks(first, 500)  # what has not run since two looks that agreed is looked into each half hour
        first.ledger.close()
        process.kill()
    ticks(guarding(tmp_path, None, look=HANGS, heard=heard), 1)
    assert [title.partition(": ")[2] for title in heard.titles] == [
        f"process {process.pid} on gpu7", "a hang of it may not be told", "hang 1 of it is over",
    ]  # fmt: skip


def test_a_report_that_ctrl_c_interrupts_is_written_before_the_guard_ends(tmp_path, asleep):
    guard, asked = guarding(tmp_path, asleep, look=HANGS, heard=Heard()), []

    def interrupted_once(look):
        asked.append(look)
        if len(asked) == 1:
            raise KeyboardInterrupt

    guard.report = interrupted_once
    with pytest.raises(KeyboardInterrupt):
        ticks(guard, 20)
    guard.write_reports()
    guard.write_reports()
    assert asked == [HANGS, HANGS]


def test_a_disk_that_is_full_for_a_while_costs_no_event(tmp_path, asleep, monkeypatch):
    guard = guarding(tmp_path, asleep, look=HANGS, heard=Heard())
    real, full = guard.ledger.fd, open("/dev/full", "ab", buffering=0)  # noqa: PTH123, SIM115 - a descriptor is wanted
    guard.ledger.fd = full.fileno()
    monkeypatch.setattr("os.fstat", lambda fd: type("S", (), {"st_size": 0})())
    ticks(guard, 20)
    assert guard.ledger.lost
    guard.ledger.fd = real
    monkeypatch.undo()
    ticks(guard, 1)
    full.close()
    assert [event["event"] for event in guard.ledger.events()] == ["suspect", "suspect", "hang", "delivered"]


def test_two_guards_do_not_share_a_folder(tmp_path):
    ledger = Ledger.open(tmp_path)
    with pytest.raises(GuardedError, match="another guard writes"):
        Ledger.open(tmp_path)
    ledger.close()
    Ledger.open(tmp_path).close()


def test_half_a_line_of_a_ledger_is_left_out(tmp_path):
    ledger = Ledger.open(tmp_path)
    ledger.add(event="hang", id="1")
    with ledger.path.open("a") as file:
        file.write('{"event": "de')
    assert [event["event"] for event in ledger.events()] == ["hang"]


@pytest.mark.parametrize(("confidence", "ends"), [("high", True), ("medium", False)])
def test_term_goes_to_the_process_that_was_named_for_a_certain_hang_only(tmp_path, asleep, confidence, ends):
    look = Look(kind="HANG", cause="deadlock", confidence=confidence, because="")
    ticks(guarding(tmp_path, asleep, look=look, heard=Heard(), end=True), 20)
    if ends:
        assert asleep.wait(20) == -15
    assert (asleep.poll() is None) is not ends


def test_a_process_with_the_number_of_one_that_ended_is_not_guarded(asleep):
    other = Guarded(pid=asleep.pid, started=1, command="gone")
    assert jobs.pids(other, proc=Proc()) == []
    assert jobs.pids(jobs.job_of(asleep.pid), proc=Proc()) == [asleep.pid]


def test_jobs_are_found_by_their_command_line_and_we_are_none(asleep):
    found = jobs.matching(re.compile(r"time\.sleep\(300\)"))
    assert asleep.pid in [job.pid for job in found]
    assert jobs.matching(re.compile("pytest.*test_guard_no_such_thing")) == []


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # by apprise, on Python 3.11 and 3.12
def test_an_address_is_known_by_a_fingerprint_because_it_may_hold_a_secret():
    one = address("json://user:secret@127.0.0.1:9/hook")
    assert one.name.startswith("json-")
    assert "secret" not in one.name
    with pytest.raises(ReceiverError, match="does not understand this nonsense address"):
        address("nonsense://x")


def test_the_ledger_is_one_json_object_a_line(tmp_path):
    ledger = Ledger.open(tmp_path)
    ledger.add(event="hang", body="two\nlines \x1b")
    (line,) = ledger.path.read_text().splitlines()
    assert json.loads(line)["body"] == "two\nlines \x1b"


@pytest.mark.parametrize(
    "said", ["", "{", '{"error": "no such process", "run": null}', '{"run": "x", "verdict": null}']
)
def test_a_look_that_fails_is_no_look_and_no_end_of_the_guard(tmp_path, asleep, monkeypatch, said):
    monkeypatch.setattr("harness.guard.guard._by_ourselves", lambda *argv: said)
    assert look_into(jobs.job_of(asleep.pid), looks=tmp_path / "looks", runs=tmp_path) is None


def test_on_a_full_disk_a_hang_is_kept_where_it_was_seen(tmp_path, asleep, monkeypatch):
    run = tmp_path / "20260101-watch"
    run.mkdir()
    verdict = {"kind": "HANG", "cause": "deadlock", "confidence": "high", "because": "nothing moves", "rank": 1}
    said = json.dumps({"run": str(run), "verdict": verdict})
    monkeypatch.setattr("harness.guard.guard._by_ourselves", lambda *argv: said)
    monkeypatch.setattr("harness.guard.guard._with_room", lambda folder: tmp_path)
    look = look_into(jobs.job_of(asleep.pid), looks=tmp_path / "looks", runs=tmp_path)
    assert look is not None
    assert (look.run, look.rank) == (str(run), 1)


def test_a_run_is_marked_in_its_tensorboard(tmp_path):
    one = address(f"tensorboard:{tmp_path}")
    assert one.tell(HUNG)

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (mark,) = events.Tensors("nsa-harness/guard")
    assert mark.tensor_proto.string_val[0].decode().startswith("**HANG (deadlock): process 7**")


@pytest.fixture
def collects():
    """A server that answers one POST with a status, and what it was sent."""
    posts = []

    class Collects(BaseHTTPRequestHandler):
        def do_POST(self):
            posts.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(self.server.status)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Collects) as server:
        server.status, server.posts = 200, posts
        Thread(target=server.handle_request, daemon=True).start()
        yield server


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # which apprise imports
@pytest.mark.parametrize(
    ("what", "kind"), [(What.HANG, "failure"), (What.BLIND, "warning"), (What.GOES_ON, "success"), (What.ENDED, "info")]
)
def test_what_apprise_is_sent_says_how_bad_it_is(collects, what, kind):
    assert address(f"json://127.0.0.1:{collects.server_port}").tell(replace(HUNG, what=what))
    ((_, said),) = collects.posts
    assert (said["type"], said["title"]) == (kind, HUNG.title)


@pytest.mark.parametrize(("status", "taken"), [(200, True), (503, False)])
def test_a_collector_of_opentelemetry_is_sent_a_log_record(collects, status, taken):
    collects.status = status
    assert address(f"otlp:http://127.0.0.1:{collects.server_port}").tell(HUNG) is taken

    ((path, said),) = collects.posts
    (record,) = said["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert path == "/v1/logs"
    assert (record["severityText"], record["attributes"][1]["value"]) == ("ERROR", {"stringValue": "7-1-1-hang"})


def test_a_collector_that_is_not_there_has_taken_nothing():
    assert not address("otlp:http://127.0.0.1:9").tell(HUNG)
    with pytest.raises(ReceiverError, match=r"write for example otlp:http://127\.0\.0\.1:4318"):
        address("otlp:127.0.0.1")


def test_a_hang_that_an_earlier_guard_told_is_looked_into_at_once():
    assert Vigil(began_s=0.0, hang=1, hangs=1).is_due(0.0)
    assert not Vigil(began_s=0.0).is_due(0.0)


def test_a_look_of_an_earlier_guard_is_not_repeated_before_its_time():
    """A guard that was killed just after its first look ended a job six seconds later: twenty are promised."""
    vigil = Vigil(began_s=100.0)
    vigil.suspect_again("deadlock", age_s=2.0)
    assert not vigil.is_due(100.0 + CONFIRM_S - 2.5)
    assert vigil.is_due(100.0 + CONFIRM_S - 2.0)


def test_a_job_that_computes_after_its_first_look_is_not_looked_into_before_its_time():
    """Computing for a moment, it was looked into at once, and told after two looks as little as ten seconds apart."""
    vigil = Vigil(began_s=0.0)
    for now_s in (0.0, 10.0):
        vigil.pulse(now_s, {1: 0.0})
    hangs = Look(kind="HANG", cause="deadlock", confidence="high", because="")
    assert vigil.looked(40.0, hangs) is None
    vigil.pulse(50.0, {1: 5.0})
    assert not vigil.is_due(50.0)
    assert vigil.is_due(40.0 + CONFIRM_S)
    assert vigil.looked(40.0 + CONFIRM_S, hangs) is What.HANG


def test_a_job_of_slurm_is_looked_into_by_the_clock_and_over_when_slurm_says_so(tmp_path, monkeypatch):
    states = ["RUNNING"]
    monkeypatch.setattr("harness.guard.jobs.state_of", lambda job: (states[-1], 2))
    monkeypatch.setattr("harness.guard.jobs.nodes_of", lambda job: 2)
    heard = Heard()
    guard = guarding(tmp_path, None, look=WORKS, heard=heard)
    guard.guard(jobs.of_slurm(17))
    ticks(guard, 360)
    assert guard.looks == 4, "after half a minute, and then each quarter of an hour"
    guard.look = lambda job: HANGS
    ticks(guard, 100)
    states.append("COMPLETED")
    ticks(guard, 7)
    assert heard.titles == ["HANG (deadlock): job 17 of Slurm", "job 17 of Slurm has ended: hang 1 of it is over"]
    assert heard.bodies[0].endswith("incident 0-17-1-hang")
    assert guard.vigils == {}


def test_a_slurm_that_does_not_answer_has_ended_no_job(monkeypatch):
    def away(job):
        raise NoSlurmJobError("Slurm does not answer")

    monkeypatch.setattr("harness.guard.jobs.state_of", away)
    assert jobs.lives(Guarded(pid=0, started=17, command=""))


def test_the_job_of_slurm_that_is_meant_is_looked_into(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("harness.guard.jobs.state_of", lambda job: ("RUNNING", 2))
    monkeypatch.setattr("harness.guard.guard._by_ourselves", lambda *argv: asked.append(argv) or "")
    look_into(Guarded(pid=0, started=17, command=""), looks=tmp_path / "looks", runs=tmp_path)
    assert asked[0][:3] == ("watch", "--slurm", "17")


@pytest.mark.parametrize("words", [("--", "python", "train.py"), ("python", "train.py"), ("0",), ()])
def test_who_gives_no_pid_is_told_what_is_guarded_and_what_starts_a_program(words):
    done = CliRunner().invoke(main, ["guard", *words], prog_name="nsa-harness")
    assert done.exit_code == 2
    text = " ".join(done.stderr.split())
    assert "a PID, --slurm JOBID, or --match REGEX" in text
    assert "nsa-harness run -- COMMAND" in text
    assert "range" not in text


def lines_of(pattern, folder):
    """What a guard of ``pattern`` says in ten minutes."""
    lines = []
    guard = guarding(folder, None, look=WORKS, heard=Heard())
    guard.pattern, guard.say = re.compile(pattern), lines.append
    ticks(guard, 60)
    return lines


def test_a_pattern_that_nothing_matches_is_told_of_once_after_a_while(tmp_path):
    (line,) = lines_of("no such trian.py", tmp_path)
    assert line.startswith("no Python job of this user has a command line that fits 'no such trian.py' so far")


def test_of_a_pattern_that_something_matches_that_alone_is_told(tmp_path, asleep):
    lines = lines_of(r"time\.sleep\(300\)", tmp_path)
    assert lines
    assert all(line.startswith("guarding process ") for line in lines)
