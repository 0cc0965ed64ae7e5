"""What GPUs and communicators say, each source with its reason when it cannot."""

from __future__ import annotations

import http.server
import json
import os
import pickle
import pickletools
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_clock import FakeClock
from harness.core.devices import CollectiveState, GpuActivity, GpuSample, RasReport
from harness.core.evidence import SourceFailure
from harness.core.ports import DeviceSample, WatchedJob
from harness.observe.devices.activity import Activity
from harness.observe.devices.devices import Devices
from harness.observe.devices.nvml import Nvml
from harness.observe.devices.parse_recorder import MOST_OPERATIONS, parse_recorder
from harness.observe.devices.plain_pickle import load_plain
from harness.observe.devices.ras import NcclRas, parse_ras
from harness.observe.devices.recorder import FlightRecorder
from harness.observe.devices.table import DEVICE_SOURCES, load_devices
from harness.reading.desync import Parting, partings
from harness.store import layout

RECORDED = Path(__file__).parents[3] / "data" / "evidence" / "h200"


def diverges(states, *, world=0):
    """Where the ranks first part, over all groups."""
    return next(iter(partings(states, world=world)), None)


def job(trial_dir: Path = Path(), *, ranks: dict[int, int] | None = None, world: int = 1) -> WatchedJob:
    return WatchedJob(ranks=ranks or {}, pids=frozenset({4711}), world=world, trial_dir=trial_dir, t_s=9.0)


OURS = job(ranks={0: 4711, 1: os.getpid()}, world=2)
"""A job one of whose ranks is this very process."""


class States:
    """Stands for /proc: the state of each PID, empty for one that is gone."""

    def __init__(self, **states: str) -> None:
        self._states = {int(name.removeprefix("pid")): state for name, state in states.items()}

    def states(self, pid: int) -> str:
        return self._states.get(pid, "")


# --- The flight recorder's pickle ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", sorted(RECORDED.glob("*/flight_recorder_*")), ids=lambda p: f"{p.parent.name}-{p.name}"
)
def test_a_recorded_pickle_is_read_as_it_is(path):
    assert load_plain(path.read_bytes()) == pickle.loads(path.read_bytes())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    ),
    st.sampled_from((2, 4, 5)),
)
def test_plain_data_survives(data, protocol):
    assert load_plain(pickle.dumps(data, protocol=protocol)) == data


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_would_run_something_is_not_loaded(tmp_path):
    hit = tmp_path / "hit"
    for protocol in range(6):
        with pytest.raises(ValueError, match="more than plain data"):
            load_plain(pickle.dumps({"entries": [Bomb(hit)]}, protocol=protocol))
    assert not hit.exists()


def test_a_pickle_that_asks_for_memory_it_does_not_bring_is_refused():
    asks = b"\x80\x05" + b"\x96" + (1 << 40).to_bytes(8, "little") + b"x."
    with pytest.raises(ValueError, match=r"it is no whole pickle|expected|more than plain data"):
        load_plain(asks)
    assert "BYTEARRAY8" in {op.name for op in pickletools.opcodes}


@pytest.mark.parametrize("cut", [0, 1, 40, -1])
def test_half_a_pickle_says_so(cut):
    whole = (RECORDED / "straggler" / "flight_recorder_0").read_bytes()
    with pytest.raises(ValueError, match=r"\w"):
        load_plain(whole[:cut])


# --- What a recorder held ------------------------------------------------------------------------------------------


def entry(seq: int, *, name: str = "gloo:all_reduce", size: int = 4, over: bool = True, **more: object) -> dict:
    return {
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "profiling_name": name,
        "process_group": ["0", "default_pg"],
        "input_sizes": [[size]],
        "input_dtypes": ["Float"],
        "state": "scheduled",
        "retired": over,
        **more,
    }


def record(*entries: dict, groups: dict | None = None) -> bytes:
    groups = {"": {"desc": "", "name": "", "ranks": "[0, 1]"}} if groups is None else groups
    return json.dumps({"version": "2.10", "entries": entries, "pg_config": groups}).encode()


def held(rank: int, *entries: dict, groups: dict | None = None) -> CollectiveState:
    return parse_recorder(record(*entries, groups=groups), t_s=1.0, rank=rank, source="test")


def test_a_gloo_record_is_read_with_the_group_that_it_does_not_name():
    state = held(1, entry(1), entry(2, over=False))
    assert (state.backend, state.groups) == ("gloo", (("0", (0, 1)),))
    assert [str(op) for op in state.pending] == ["all_reduce [4] Float (number 2)"]


def test_an_nccl_record_says_which_line_of_the_program_called():
    data = (RECORDED / "skip_collective" / "flight_recorder_0").read_bytes()
    state = parse_recorder(data, t_s=1.0, rank=0, source="pipe")
    assert [(op.op, op.seq, op.where, op.done) for op in state.collectives[-2:]] == [
        ("all_reduce", 3, "faults.py:10", True),
        ("all_reduce", 4, "faults.py:12", False),
    ]


@pytest.mark.parametrize(
    ("counted", "done"), [({"1": -1}, False), ({"1": 1}, True), ({"0": 33}, True), (None, True)], ids=str
)
def test_an_operation_whose_call_has_not_returned_is_not_over_whatever_its_events_say(counted, done):
    """As two H100 had it: NCCL connected the ranks of a new group, and the first operation there read "completed"."""
    status = counted and {name: {"last_enqueued_collective": number} for name, number in counted.items()}
    new = {"process_group": ["1", "undefined"], "pg_id": 1, "state": "completed", "over": False}
    rows = [entry(33, name="nccl:all_reduce", pg_id=0, state="completed"), entry(1, name="nccl:all_reduce", **new)]
    groups = {name: {"name": name, "ranks": "[0, 1]"} for name in "012"}
    data = json.loads(record(*rows, groups=groups)) | {"pg_status": status}
    first, last = parse_recorder(json.dumps(data).encode(), t_s=1.0, rank=0, source="pipe").collectives
    assert (first.done, last.done) == (True, done)


def test_two_ranks_that_connect_in_different_groups_wait_for_each_other():
    states = []
    for rank, group in enumerate("12"):
        new = {"process_group": [group, ""], "pg_id": int(group), "state": "completed", "over": False}
        row = entry(1, name="nccl:all_reduce", **new)
        data = json.loads(record(row, groups={name: {"name": name, "ranks": "[0, 1]"} for name in "012"}))
        data["pg_status"] = {group: {"last_enqueued_collective": -1}}
        states.append(parse_recorder(json.dumps(data).encode(), t_s=1.0, rank=rank, source="pipe"))
    assert [(d.parting, d.group, d.odd) for d in partings(states)] == [
        (Parting.MISSING, "1", (1,)),
        (Parting.MISSING, "2", (0,)),
    ]


def test_only_the_last_operations_are_kept():
    state = held(0, *(entry(seq) for seq in range(1, MOST_OPERATIONS + 50)))
    assert len(state.collectives) == MOST_OPERATIONS
    assert state.collectives[-1].seq == MOST_OPERATIONS + 49


@pytest.mark.parametrize("data", [b"{}x", b"[]", b'{"entries": [{}]}', b"\x80\x04]\x94.", b""])
def test_what_is_no_record_is_refused(data):
    with pytest.raises(ValueError, match=r"\w"):
        parse_recorder(data, t_s=1.0, rank=0, source="test")


# --- Ranks side by side --------------------------------------------------------------------------------------------


def both(ops_0: list[dict], ops_1: list[dict]) -> list[CollectiveState]:
    return [held(0, *ops_0), held(1, *ops_1)]


def test_the_rank_that_breaks_the_habit_is_the_odd_one():
    usual = [entry(seq, size=4 if seq % 2 else 1) for seq in range(1, 7)]
    found = diverges(both([*usual, entry(7, size=4, over=False)], [*usual, entry(7, size=1)]))
    assert found is not None
    assert (found.parting, found.seq, found.odd, found.by_habit) == (Parting.SHAPE, 7, (1,), True)


def test_a_habit_is_what_followed_the_longest_like_history():
    """After 4 1 comes 9 in one place and 4 in another; what came before them decides."""
    sizes = [4, 1, 9, 7, 4, 1, 2, 7]
    history = [entry(i, size=n) for i, n in enumerate(sizes, start=1)]
    next_, other = entry(9, size=4, over=False), entry(9, size=5, over=False)
    found = diverges(both([*history, next_], [*history, other]))
    assert found is not None
    assert (found.odd, found.by_habit) == ((1,), True)


def test_the_minority_is_odd_without_any_habit():
    group = {"0": {"ranks": "[0, 1, 2]"}}
    found = diverges(
        [
            held(rank, entry(1, name="nccl:barrier" if rank == 2 else "nccl:all_reduce"), groups=group)
            for rank in range(3)
        ]
    )
    assert found is not None
    assert (found.parting, found.odd, found.by_habit) == (Parting.OPERATION, (2,), False)


def test_ranks_may_give_different_sizes_where_the_operation_allows_it():
    for op in ("all_to_all", "gather", "scatter"):
        assert diverges(both([entry(1, name=f"nccl:{op}")], [entry(1, name=f"nccl:{op}", size=9)])) is None
    for op in ("all_gather", "reduce_scatter"):
        assert diverges(both([entry(1, name=f"nccl:{op}")], [entry(1, name=f"nccl:{op}", size=9)])) is not None


def test_a_rank_whose_recorder_did_not_answer_is_missing_where_the_others_wait():
    found = diverges([held(0, entry(1), entry(2, over=False))], world=2)
    assert found is not None
    assert (found.parting, found.odd, found.unheard) == (Parting.MISSING, (1,), (1,))


def test_a_ring_that_wrapped_accuses_nobody():
    """One recorder keeps fewer operations: what it has dropped was not left out."""
    long = [entry(seq) for seq in range(1, 9)]
    assert diverges(both(long, long[-3:])) is None
    never_waited_for = [{**long[0], "retired": False}, *long[1:]]
    assert diverges(both(never_waited_for, long[-3:])) is None


def test_a_rank_that_is_only_behind_at_the_moment_is_not_missing():
    """Nobody waits: the others have got their results, and it comes to the operation later."""
    ops = [entry(seq) for seq in range(1, 5)]
    assert diverges(both(ops, ops[:3])) is None


@given(st.lists(st.tuples(st.sampled_from(["all_reduce", "broadcast"]), st.integers(1, 3)), min_size=2, max_size=20))
def test_ranks_that_did_the_same_never_part(calls):
    ops = [entry(i, name=f"nccl:{op}", size=size) for i, (op, size) in enumerate(calls, start=1)]
    assert diverges(both(ops, ops)) is None
    ops[-1] = {**ops[-1], "retired": False}
    found = diverges(both(ops, ops))
    assert found is not None
    assert (found.parting, found.odd) == (Parting.TOGETHER, ())


@given(st.integers(3, 30), st.data())
def test_a_rank_that_stops_calling_is_found_where_it_stopped(n_calls, data):
    stop = data.draw(st.integers(1, n_calls - 1))
    ops = [entry(seq, size=1 + seq % 3) for seq in range(1, n_calls + 1)]
    waits = [*ops[:stop], {**ops[stop], "retired": False}]
    group = {"0": {"ranks": "[0, 1, 2]"}}
    found = diverges([held(rank, *(ops[:stop] if rank == 1 else waits), groups=group) for rank in range(3)])
    assert found is not None
    assert (found.parting, found.seq, found.odd) == (Parting.MISSING, stop + 1, (1,))


# --- Asking the recorders ------------------------------------------------------------------------------------------


@contextmanager
def torch_server(trial_dir: Path, rank: int, handlers: dict[str, bytes]) -> Iterator[None]:
    """A stand-in for torch's own server in a rank."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(json.dumps(list(handlers)).encode())

        def do_POST(self) -> None:
            self._send(handlers[self.path.rpartition("/")[2]])

        def _send(self, data: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

        def address_string(self) -> str:
            return ""

    folder = os.open(trial_dir, os.O_PATH)
    name = f"/proc/self/fd/{folder}/{layout.recorder_socket(trial_dir, rank).name}"
    with socketserver.UnixStreamServer(name, Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            os.close(folder)


def test_every_rank_is_asked_on_its_socket_however_long_the_path_is(tmp_path):
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    gloo = record(entry(1), entry(2, over=False))
    with torch_server(folder, 0, {"ping": b"pong", "fr_trace_json": gloo}):
        seen = FlightRecorder(proc=States(pid10="S", pid11="T")).see(job(folder, ranks={0: 10, 1: 11, 2: 12}, world=4))
    (state,) = seen.collectives
    assert (state.rank, len(state.pending), state.source) == (0, 1, "fr_trace_json")
    assert [failure.reason for failure in seen.failures] == [
        "rank 1: it is stopped (state T) and cannot answer",
        "rank 2: it is gone",
        "rank 3: it is gone",
    ]


def test_a_pickle_with_the_programs_lines_is_asked_for_first(tmp_path):
    told = (RECORDED / "straggler" / "flight_recorder_0").read_bytes()
    with torch_server(tmp_path, 0, {"fr_trace_json": record(), "dump_nccl_trace_pickle": told}):
        seen = FlightRecorder(proc=States(pid10="R")).see(job(tmp_path, ranks={0: 10}, world=2))
    assert seen.collectives[0].source == "dump_nccl_trace_pickle"


def test_without_a_server_nccls_recorder_is_asked_through_its_pipe(tmp_path):
    told = (RECORDED / "straggler" / "flight_recorder_0").read_bytes()
    pipe = layout.recorder_pipe(tmp_path, 0)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY)  # keeps the pipe open, as NCCL's thread does

    def answer() -> None:
        os.set_blocking(reader, True)
        os.read(reader, 1)
        layout.recorder(tmp_path, 0).write_bytes(told)

    thread = threading.Thread(target=answer)
    thread.start()
    seen = FlightRecorder(proc=States(pid10="R")).see(job(tmp_path, ranks={0: 10}, world=2))
    thread.join()
    os.close(reader)
    os.close(writer)
    assert [(s.rank, s.source, len(s.pending)) for s in seen.collectives] == [(0, "pipe", 1)]
    assert layout.recorder_asked(tmp_path, 0) in layout.doors(tmp_path), "the rank waits for its record at its end"


def test_a_rank_without_server_or_pipe_says_both():
    seen = FlightRecorder(proc=States(pid10="S"), clock=FakeClock()).see(job(Path("/nowhere"), ranks={0: 10}, world=2))
    assert (
        seen.failures[0].reason == "rank 0: no answer on its server (not there), and no pipe to ask through (not there)"
    )


def test_a_recorder_that_takes_its_time_is_not_waited_for_for_ever(tmp_path):
    pipe = layout.recorder_pipe(tmp_path, 0)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    clock = FakeClock()
    began_s = clock.now()
    seen = FlightRecorder(proc=States(pid10="S"), clock=clock).see(job(tmp_path, ranks={0: 10}, world=2))
    os.close(reader)
    assert "it has written nothing yet" in seen.failures[0].reason
    assert 6.0 <= clock.now() - began_s < 7.0


@contextmanager
def listening(*pipes: Path) -> Iterator[list[int]]:
    """Somebody who reads at the other end of each pipe, as NCCL's threads do."""
    for pipe in pipes:
        os.mkfifo(pipe)
    readers = [os.open(pipe, os.O_RDONLY | os.O_NONBLOCK) for pipe in pipes]
    yield readers
    for reader in readers:
        os.close(reader)


def test_a_recorder_that_has_not_answered_is_not_asked_again_and_heard_when_it_does(tmp_path):
    """Each question is another thread that wants the lock which a loop in Python keeps."""
    clock, ranks = FakeClock(), {0: 10}
    recorder = FlightRecorder(proc=States(pid10="R"), clock=clock)
    with listening(layout.recorder_pipe(tmp_path, 0)) as (reader,):
        recorder.see(job(tmp_path, ranks=ranks, world=2))
        began_s = clock.now()
        again = recorder.see(job(tmp_path, ranks=ranks, world=2))
        assert clock.now() - began_s < 1.0
        assert "it has written nothing yet" in again.failures[0].reason
        assert os.read(reader, 99) == b"1\n"
        layout.recorder(tmp_path, 0).write_bytes((RECORDED / "straggler" / "flight_recorder_0").read_bytes())
        assert [s.rank for s in recorder.see(job(tmp_path, ranks=ranks, world=2)).collectives] == [0]
        recorder.see(job(tmp_path, ranks=ranks, world=2))
        assert os.read(reader, 99) == b"1\n", "it has answered, and is asked anew"


def test_once_a_rank_has_answered_the_others_are_not_waited_for_to_the_end(tmp_path):
    """All were asked at once, and have about as much to write."""

    class Answers(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            layout.recorder(tmp_path, 0).write_bytes(written)

    written, clock = (RECORDED / "straggler" / "flight_recorder_0").read_bytes(), Answers()
    began_s = clock.now()
    with listening(layout.recorder_pipe(tmp_path, 0), layout.recorder_pipe(tmp_path, 1)):
        recorder = FlightRecorder(proc=States(pid10="S", pid11="R"), clock=clock)
        seen = recorder.see(job(tmp_path, ranks={0: 10, 1: 11}, world=2))
    assert [s.rank for s in seen.collectives] == [0]
    assert seen.failures[0].reason.startswith("rank 1: ")
    assert 2.0 <= clock.now() - began_s < 3.0


def test_a_trial_of_one_process_has_no_flight_recorder_to_ask():
    assert FlightRecorder().see(job(ranks={0: 1})) == DeviceSample()


# --- NVML ----------------------------------------------------------------------------------------------------------


class NVMLError(Exception):
    pass


class Library:
    """Stands for pynvml with two cards; ``hang`` makes it stop answering."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    nvmlEventTypeXidCriticalError = 8

    def __init__(self, *, processes: dict[int, list[int]] | None = None, xids: list[tuple[int, int]] = ()) -> None:
        self.processes, self.xids, self.hang = processes or {}, list(xids), threading.Event()
        self.hangs = False
        self.freed: list[str] = []

    def nvmlInit(self):
        if self.hangs:
            self.hang.wait()

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, i):
        return i

    nvmlDeviceGetIndex = nvmlDeviceGetHandleByIndex

    def nvmlEventSetCreate(self):
        return "events"

    def nvmlDeviceRegisterEvents(self, handle, kind, events):
        pass

    def nvmlEventSetWait_v2(self, events, limit_ms):
        if not self.xids:
            raise NVMLError("Timeout")
        device, number = self.xids.pop(0)
        return SimpleNamespace(device=device, eventData=number)

    def nvmlEventSetFree(self, events):
        self.freed.append(events)

    def nvmlShutdown(self):
        self.freed.append("library")

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=100, memory=0)

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(used=1669 << 20, total=143771 << 20)

    def nvmlDeviceGetPowerUsage(self, handle):
        return 122_720

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        raise NVMLError("Not Supported")

    def nvmlDeviceGetName(self, handle):
        return b"NVIDIA H200"

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return 1980

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid, usedGpuMemory=1660 << 20) for pid in self.processes.get(handle, [])]

    def nvmlDeviceGetProcessUtilization(self, handle, since):
        return [SimpleNamespace(pid=pid, smUtil=99) for pid in self.processes.get(handle, [])]


def test_a_gpu_is_sampled_with_whose_processes_are_on_it(tmp_path):
    (tmp_path / "77").mkdir()
    library = Library(processes={1: [4711, 77, 88]})
    (gpu,) = Nvml(library=library, driver=True, proc=tmp_path).see(job()).gpus
    assert (gpu.index, gpu.name, gpu.utilisation, gpu.memory_utilisation) == (1, "NVIDIA H200", 100, 0)
    assert (gpu.power_w, gpu.power_limit_w, gpu.sm_clock_mhz) == (122.72, None, 1980)
    assert [(p.pid, p.ours, p.sm_percent) for p in gpu.processes] == [(4711, True, 99), (77, False, 99), (88, None, 99)]


class Counting(Library):
    """Counts what units do, as an H200 did for a kernel of one program that polls; ``percent`` by NVML's numbers."""

    NVML_GPM_METRICS_GET_VERSION = 1

    def __init__(self, **percent: float) -> None:
        super().__init__(processes={1: [4711]})
        self.percent = {4: 0.003, 5: 0.764, 10: 0.0, 11: 0.0, 12: 0.0, 13: 0.0} | {
            int(k[1:]): v for k, v in percent.items()
        }
        self.open_samples, self.code, self.supported = 0, 0, 1

    def nvmlGpmQueryDeviceSupport(self, handle):
        return SimpleNamespace(isSupportedDevice=self.supported)

    def nvmlGpmSampleAlloc(self):
        self.open_samples += 1
        return object()

    def nvmlGpmSampleGet(self, handle, sample):
        pass

    def nvmlGpmSampleFree(self, sample):
        self.open_samples -= 1

    def c_nvmlGpmMetricsGet_t(self):
        return SimpleNamespace(metrics=[SimpleNamespace(value=0.0, nvmlReturn=0, metricId=0) for _ in range(20)])

    def nvmlGpmMetricsGet(self, question):
        for metric in question.metrics[: question.numMetrics]:
            metric.value, metric.nvmlReturn = self.percent[metric.metricId], self.code


def activities(library: Library, *, times: tuple[float, ...] = (1.0, 2.0, 3.0)) -> list[GpuActivity | None]:
    nvml = Nvml(library=library, driver=True)
    seen = [gpu.activity for t_s in times for gpu in nvml.see(replace(job(), t_s=t_s)).gpus]
    nvml.close()
    return seen


def test_what_the_units_of_a_card_did_is_counted_from_look_to_look():
    library = Counting()
    polls = GpuActivity(floating=0.0, integer=0.003, memory=0.0)
    assert activities(library) == [None, polls, polls]
    assert library.open_samples == 0


@pytest.mark.parametrize(("unit", "percent"), [("u5", 14.0), ("u11", 3.0), ("u12", 40.0), ("u13", 9.0)])
def test_the_busiest_unit_for_floating_point_numbers_counts(unit, percent):
    assert activities(Counting(**{unit: percent}))[1:] == [GpuActivity(floating=percent, integer=0.003, memory=0.0)] * 2


def test_of_a_moment_a_card_is_not_asked_and_the_next_look_covers_it():
    library = Counting()
    polls = GpuActivity(floating=0.0, integer=0.003, memory=0.0)
    assert activities(library, times=(1.0, 2.0, 2.06, 2.3)) == [None, polls, None, polls]
    assert library.open_samples == 0


def test_what_is_no_number_is_no_count():
    library = Counting(u10=float("nan"))
    assert activities(library) == [None] * 3
    assert library.open_samples == 0


def test_a_count_after_one_that_was_none_is_of_both_times():
    library = Counting()
    activity = Activity(library, handle=None)
    assert activity.until(1.0) is None
    first = activity._before
    library.code = 3
    assert activity.until(2.0) is None
    library.code = 0
    assert activity._before is first
    assert activity.until(3.0) is not None
    assert activity._before is not first


@pytest.mark.parametrize("fault", ["no counter", "no support", "no such function"])
def test_a_card_that_does_not_count_says_nothing_of_its_units(fault):
    library = Library(processes={1: [4711]}) if fault == "no such function" else Counting()
    if fault == "no counter":
        library.code = 3
    elif fault == "no support":
        library.supported = 0
    assert activities(library) == [None] * 3


def test_all_gpus_are_sampled_while_the_trial_is_on_none():
    assert [gpu.index for gpu in Nvml(library=Library(), driver=True).see(job()).gpus] == [0, 1]


def test_faults_of_the_driver_are_kept_from_the_look_at_which_they_came():
    nvml = Nvml(library=(library := Library()), driver=True)
    assert [gpu.xids for gpu in nvml.see(job()).gpus] == [(), ()]
    library.xids = [(1, 79), (1, 48)]
    assert [gpu.xids for gpu in nvml.see(job()).gpus] == [(), (79, 48)]
    assert [gpu.xids for gpu in nvml.see(job()).gpus] == [(), (79, 48)]


def test_a_driver_that_does_not_answer_is_asked_once():
    library = Library()
    library.hangs = True
    nvml = Nvml(library=library, driver=True, limit_s=0.05)
    first, second = nvml.see(job()), nvml.see(job())
    library.hang.set()
    assert first.failures[0].reason == "the driver did not answer within 0.05 s and was not asked again"
    assert second.failures == first.failures


def test_what_nvml_holds_open_is_given_back_once():
    """Seven hundred trials on one machine each left a set of events open, until no descriptor was left."""
    library = Library()
    nvml = Nvml(library=library, driver=True)
    nvml.see(job())
    nvml.close()
    nvml.close()
    assert library.freed == ["events", "library"]


def test_nothing_is_given_back_that_was_never_opened():
    library = Library()
    Nvml(library=library, driver=False).close()
    Nvml(library=library, driver=True).close()
    assert library.freed == []


def test_a_machine_without_a_driver_has_nothing_to_say_and_nothing_to_complain_about():
    assert Nvml(driver=False).see(job()) == DeviceSample()


def test_a_card_that_reports_no_faults_says_so_beside_its_samples():
    class Deaf(Library):
        def nvmlDeviceRegisterEvents(self, handle, kind, events):
            raise NVMLError("Not Supported")

    seen = Nvml(library=Deaf(), driver=True).see(job())
    assert len(seen.gpus) == 2
    assert seen.failures[0].reason == "Xids are not told here: Not Supported"


# --- RAS -----------------------------------------------------------------------------------------------------------

STATUS = """NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          2            1          2        2

Communicators... (0.000s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         2         2         2   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (e44ca026a39a577c) MISMATCH
  Communicator ranks have different AllReduce operation counts
  Rank 0 has launched up to operation 5 -- GPU 0 managed by process 18704 on node 192.0.2.2
  Rank 1 has launched up to operation 4 -- GPU 1 managed by process 18705 on node 192.0.2.2

"""
"""What NCCL 2.28.9 answered on two H200 while rank 0 waited in an all_reduce that rank 1 had left out."""


@contextmanager
def ras_service(answers: list[bytes]) -> Iterator[tuple[str, int]]:
    """A stand-in for NCCL's service: one line of ours, one answer of its."""

    class Talk(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for answer in answers:
                self.rfile.readline()
                self.wfile.write(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Talk) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield server.server_address
        thread.join()


def test_ras_is_asked_in_its_own_protocol():
    with ras_service([b"SERVER PROTOCOL 2\n", b"OK\n", STATUS.encode()]) as address:
        (report,) = NcclRas(address=address).see(OURS).ras
    assert report.launched == ((0, 5), (1, 4))
    assert report.complaints == (
        "0         1         1         2         2         2   RUNNING  MISMATCH",
        "#0-0 (e44ca026a39a577c) MISMATCH",
    )
    assert "192.0.2.2" not in report.text


def test_ranks_that_ras_misses_are_named():
    assert parse_ras("  Missing communicator data from ranks 1, 3-4\n", t_s=1.0).missing == (1, 3, 4)


def test_something_else_on_the_port_is_not_taken_for_ras():
    with ras_service([b"HTTP/1.1 400 Bad Request\n"]) as address:
        seen = NcclRas(address=address).see(OURS)
    assert seen.failures[0].reason.endswith("what listens there is not NCCL's RAS")


def test_ras_that_gave_no_answer_is_not_asked_again(monkeypatch):
    """A stopped rank makes it wait for its own limit each time."""
    monkeypatch.setattr("harness.observe.devices.ras.ANSWER_S", -0.9)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        ras = NcclRas(address=mute.getsockname())
        assert "no answer within" in ras.see(OURS).failures[0].reason
        mute.accept()[0].close()
        assert ras.see(OURS) == DeviceSample()
        mute.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            mute.accept()


def test_the_ras_of_another_job_is_no_witness():
    """Two jobs on one machine use one port; on two H200s the second was shown the operations of the first."""
    with (
        socket.create_server(("127.0.0.1", 0)) as theirs,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as rank,
    ):
        theirs.settimeout(0.0)
        seen = NcclRas(address=theirs.getsockname()).see(job(ranks={0: rank.pid, 1: rank.pid}, world=2))
        assert (seen.ras, len(seen.failures)) == ((), 1)
        assert "another job's" in seen.failures[0].reason
        with pytest.raises(BlockingIOError):
            theirs.accept()  # it was not even asked
        rank.kill()


def test_a_port_that_another_jobs_ras_listens_at_too_is_not_asked():
    """NCCL binds so that all may: on two H200s a job was told of the operations of one that ran beside it."""
    listens = (
        "import socket, sys; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); "
        "s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen(); print(s.getsockname()[1], flush=True); input()"
    )

    def listening(port: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", listens, str(port)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with listening(0) as ours:
        assert ours.stdout is not None
        port = int(ours.stdout.readline())
        with listening(port) as theirs:
            assert theirs.stdout is not None
            theirs.stdout.readline()
            seen = NcclRas(address=("127.0.0.1", port)).see(job(ranks={0: ours.pid, 1: ours.pid}, world=2))
            assert (seen.ras, len(seen.failures)) == ((), 1)
            assert "another job's, too" in seen.failures[0].reason
            theirs.kill()
        ours.kill()


def test_a_job_without_nccl_has_no_ras_to_complain_about():
    with ras_service([b""]) as address:
        NcclRas(address=address).see(OURS)
    assert NcclRas(address=address).see(OURS) == DeviceSample()


def test_a_healthy_answer_complains_about_nothing():
    healthy = "Communicators\n 0  1  1  2  2  2   RUNNING      OK\n\nErrors\n======\n\nWarnings\n========\n"
    assert parse_ras(healthy, t_s=1.0) == RasReport(id="", t_s=1.0, text=healthy)


# --- All of them together ------------------------------------------------------------------------------------------


class Source:
    def __init__(self, name: str, *answers: DeviceSample, repeated: bool) -> None:
        self.name, self.repeated, self._answers = name, repeated, list(answers)

    def see(self, job: WatchedJob) -> DeviceSample:
        return self._answers.pop(0)

    def close(self) -> None:
        pass


def test_samples_are_numbered_and_each_reason_is_kept_once():
    gpu = GpuSample(id="", t_s=1.0, index=0, name="x")
    failed = SourceFailure(id="", source="nvml", reason="no")
    devices = Devices(
        (
            Source("nvml", *[DeviceSample(gpus=(gpu, gpu), failures=(failed,))] * 2, repeated=True),
            Source("recorder", DeviceSample(collectives=(held(0, entry(1)),)), repeated=False),
        )
    )
    devices.look(job())
    devices.look(job())
    devices.dump(job())
    assert [sample.id for sample in devices.gpus] == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    assert [failure.id for failure in devices.failures] == ["device-failure-1"]
    assert [state.id for state in devices.collectives] == ["recorder-1"]


def test_of_several_dumps_of_a_rank_the_last_is_kept():
    first, last = held(0, entry(1)), held(0, entry(1), entry(2))
    seen = [DeviceSample(collectives=(state,), ras=(RasReport(id="", t_s=1.0, text=""),)) for state in (first, last)]
    devices = Devices((Source("recorder", *seen, repeated=False),))
    devices.dump(job())
    devices.dump(job())
    assert devices.collectives == (replace(last, id="recorder-3"),)
    assert [report.id for report in devices.ras] == ["ras-4"]


def test_the_table_loads_all_sources_and_none_sees_anything_of_a_plain_process_here():
    devices = load_devices()
    devices.look(job(ranks={0: os.getpid()}))
    devices.dump(job(ranks={0: os.getpid()}))
    assert DEVICE_SOURCES.names() == ("nvml", "flight-recorder", "nccl-ras")
    assert devices.collectives == ()
    assert devices.ras == ()
