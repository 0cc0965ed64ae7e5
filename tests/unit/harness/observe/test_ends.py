"""Who can end a wait, by what the trial's processes have open: real sockets and pipes of this very process."""

from __future__ import annotations

import ctypes
import errno
import mmap
import multiprocessing.connection
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from unittest.mock import Mock

import psutil
import pytest

from harness.observe.ends import End, Ends, has_a_limit
from harness.observe.proc import Proc
from harness.observe.procfs import Files
from harness.observe.syscalls import Call
from harness.reading.waits import BEGINS

ME = os.getpid()


def end_of(fd, name, **how):
    return Ends({ME: 0}, **how).of(ME, Call(name, (fd, 0, 0, 0, 0, 0), timed=False))


@pytest.fixture(params=["127.0.0.1", "0.0.0.0"])
def server(request):
    with socket.create_server((request.param, 0)) as server:
        yield server


@pytest.fixture
def client(server):
    with socket.create_connection(("127.0.0.1", server.getsockname()[1])) as client:
        yield client


def test_an_answer_on_a_connection_that_nobody_accepted_can_come_from_whoever_listens(client):
    end = end_of(client.fileno(), "recvfrom")
    assert (end.holders, end.outside) == ((ME,), False)


def test_a_call_to_another_machine_is_given_up_after_some_tries():
    """Of a full queue nobody answers: the process that listens could let it in, and the kernel ends it anyway."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, socket.socket() as caller:
        address = server.getsockname()
        with socket.create_connection(address):
            caller.setblocking(False)
            with pytest.raises(BlockingIOError):
                caller.connect(address)
            end = end_of(caller.fileno(), "connect")
    assert (end.call, end.holders, end.outside) == ("connect", (), True)


def test_an_answer_on_an_accepted_connection_can_come_from_whoever_holds_the_other_end(server, client):
    other, _ = server.accept()
    with other:
        end = end_of(client.fileno(), "recvfrom")
    assert (end.holders, end.outside) == ((ME,), False)


def test_an_answer_on_a_connection_whose_server_is_gone_comes_from_outside_if_at_all(server, client):
    server.close()
    end = end_of(client.fileno(), "recvfrom")
    assert (end.holders, end.outside) == ((), True)


@pytest.mark.parametrize("option", [socket.SO_RCVTIMEO, socket.SO_SNDTIMEO])
def test_a_wait_on_a_socket_with_a_time_limit_of_its_own_may_end_by_that(option):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not end_of(ours.fileno(), "recvfrom").outside
        ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", 30, 0))
        end = end_of(ours.fileno(), "recvfrom")
        assert (end.holders, end.outside) == ((ME,), True)
        assert not end_of(theirs.fileno(), "recvfrom").outside


def test_a_connection_that_gives_up_what_nobody_takes_may_end_by_that(server, client):
    other, _ = server.accept()
    with other:
        client.setsockopt(socket.IPPROTO_TCP, 18, 20_000)  # TCP_USER_TIMEOUT, milliseconds
        assert end_of(client.fileno(), "sendto").outside


class NotToBeAsked(socket.socket):
    """A socket of a kind whose options Python reads of no descriptor, as vsock's and MPTCP's are."""

    def getsockopt(self, *_: object) -> int:
        raise OSError("getsockopt string buffer not allowed")


def test_a_socket_of_a_kind_that_nobody_may_ask_may_have_a_limit_and_ends_no_look(monkeypatch):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not has_a_limit(ME, ours.fileno())
        monkeypatch.setattr(socket, "socket", NotToBeAsked)
        assert has_a_limit(ME, ours.fileno())


def test_what_is_no_socket_any_more_has_no_limit():
    reader, writer = os.pipe()
    assert not has_a_limit(ME, reader)
    os.close(reader)
    os.close(writer)
    assert not has_a_limit(ME, reader)


def test_a_listener_waits_for_outside(server):
    assert end_of(server.fileno(), "accept").outside


def test_a_service_of_the_programs_own_waits_for_nobody_else(server, client):
    """Its port was chosen by the kernel, only this machine can connect, and a process of the program's own has."""
    end = end_of(server.fileno(), "accept")
    is_private = server.getsockname()[0] == "127.0.0.1"
    assert (end.holders, end.outside) == ((ME,) if is_private else (), not is_private)
    assert end.call == ("accept-own" if is_private else "accept")


def test_where_multiprocessing_listens_nobody_else_comes_and_at_another_path_anybody_may(tmp_path):
    with multiprocessing.connection.Listener(family="AF_UNIX") as own:
        ends = [end_of(own._listener._socket.fileno(), "accept")]
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "socket"))
        other.listen()
        ends.append(end_of(other.fileno(), "accept"))
    assert [(end.holders, end.outside) for end in ends] == [((ME,), False), ((), True)]


def test_who_is_handed_an_address_may_come_and_who_is_handed_an_end_may_write(server, client):
    with multiprocessing.connection.Listener(family="AF_UNIX") as own:
        assert end_of(own._listener._socket.fileno(), "accept", hands_out={"address"}).outside
    with server.accept()[0], own_pair() as (ours, reader):
        waits = {client.fileno(): "recvfrom", ours.fileno(): "recvfrom", reader: "read"}
        for fd, name in waits.items():
            ends = [end_of(fd, name, hands_out=words) for words in (set(), {"address"}, {"send_fds"})]
            assert [(end.holders, end.outside) for end in ends] == [((ME,), False), ((ME,), False), ((ME,), True)]


@contextmanager
def own_pair():
    """A socket, and the end of a pipe that is read from, whose other ends are open here, too."""
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    with ours, theirs:
        yield ours, reader
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(("forks", "is_forked"), [(True, False), (False, False), (True, True)])
def test_who_forks_when_asked_is_asked_by_nobody_but_who_started_it_and_those_below(forks, is_forked):
    code = (
        "import multiprocessing.connection as c, time\n"
        f"{'import os; os.fork() and (os.wait(), os._exit(0))' if is_forked else ''}\n"
        "one = c.Listener(family='AF_UNIX')\n"
        "import os; print(one._listener._socket.fileno(), os.getpid(), flush=True)\n"
        "time.sleep(60)"
    )
    words = [sys.executable, "-c", code, "multiprocessing.forkserver" if forks else "multiprocessing.managers"]
    agent, other_rank = 4_100_001, 4_100_002
    with subprocess.Popen(words, stdout=subprocess.PIPE) as server:
        fd, listens = map(int, server.stdout.readline().split())
        parents = {
            agent: 1,
            other_rank: agent,
            ME: agent,
            server.pid: ME,
            **({listens: server.pid} if is_forked else {}),
        }
        end = Ends(parents).of(listens, Call("accept", (fd, 0, 0, 0, 0, 0), timed=False))
        psutil.Process(listens).kill()
        server.kill()
    family = {ME, server.pid} if forks and not is_forked else parents
    assert (end.holders, end.outside) == (tuple(sorted(family)), False)


def test_anybody_may_know_a_port_that_the_kernel_did_not_choose():
    for port in range(20_000, 30_000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as server:
            with socket.create_connection(("127.0.0.1", port)):
                assert end_of(server.fileno(), "accept").outside
            return


def test_a_pipe_is_filled_by_whoever_can_read_it():
    reader, writer = os.pipe()
    end = end_of(writer, "write")
    assert (end.call, end.holders, end.outside) == ("pipe-write", (ME,), False)
    os.close(reader)
    assert end_of(writer, "write").outside
    os.close(writer)


@pytest.fixture
def event():
    fd = os.eventfd(0)
    yield fd
    os.close(fd)


def end_of_event(fd, other):
    return Ends({ME: 0, other: ME}).of(ME, Call("read", (fd, 0, 0, 0, 0, 0), timed=False))


def test_an_event_comes_from_whoever_has_that_very_one_or_was_handed_it(event):
    """Another process of the trial has one of its own, or has inherited it. A program outside leaves no trace here."""
    makes = [sys.executable, "-c", "import os; os.eventfd(0); print(flush=True); input()"]
    for inherited in (False, True):
        fds = (event,) if inherited else ()
        with subprocess.Popen(makes, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=fds) as other:
            other.stdout.readline()
            end = end_of_event(event, other.pid)
            other.communicate(b"\n")
        assert (end.call, end.outside) == ("eventfd", True)
        assert set(end.holders) == ({ME, other.pid} if inherited else {ME})


@pytest.mark.parametrize(("runs_s", "has_a_timer"), [(40, True), (0, False)], ids=["runs", "does not run"])
def test_a_timer_that_runs_ends_the_wait_for_it_and_for_one_of_several(runs_s, has_a_timer):
    libc = ctypes.CDLL(None)
    fd = libc.timerfd_create(time.CLOCK_MONOTONIC, 0)
    assert libc.timerfd_settime(fd, 0, struct.pack("4q", 0, 0, runs_s, 0), None) == 0
    polled = ctypes.create_string_buffer(struct.pack("ihh", fd, select.POLLIN, 0))
    poll = Call("poll", (ctypes.addressof(polled), 1, 2**32 - 1, 0, 0, 0), timed=False)
    ends = Ends({ME: 0})
    assert end_of(fd, "read").has_a_timer is has_a_timer
    assert ends.of(ME, poll).has_a_timer is has_a_timer
    os.close(fd)


def test_of_kernels_that_do_not_number_events_whoever_has_any_may_have_it(event, monkeypatch):
    fields = Ends({})._files.fields

    def without_number(files, at):
        return {name: value for name, value in fields(at).items() if name != "eventfd-id"}

    monkeypatch.setattr("harness.observe.procfs.Files.fields", without_number)
    makes = [sys.executable, "-c", "import os; os.eventfd(0); print(flush=True); input()"]
    with subprocess.Popen(makes, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        end = end_of_event(event, other.pid)
        other.communicate(b"\n")
    assert set(end.holders) == {ME, other.pid}


def test_a_listener_at_the_same_port_of_another_machine_is_no_listener_here():
    from harness.observe.ends import _serves

    assert not _serves("00000000:733C", local="0300000A:9999", to="0900000A:733C")
    assert _serves("00000000:733C", local="0300000A:9999", to="0300000A:733C")
    assert not _serves("00000000:733C", local="0100007F:9999", to="0100007F:733D")


@pytest.mark.parametrize(
    ("handles", "outside"),
    [
        ("", False),  # Python's own handler of the interrupt, and nothing else
        ("faulthandler.enable(); faulthandler.register(60); faulthandler.register(61)", False),
        ("signal.signal(signal.SIGUSR1, print)", True),
        ("signal.signal(signal.SIGTERM, print)", True),
    ],
)
def test_a_wait_for_any_signal_is_ended_by_nobody_where_no_handler_lets_the_program_go_on(handles, outside):
    program = f"import faulthandler, signal\n{handles}\nprint(flush=True)\nsignal.pause()"
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        end = Ends({child.pid: ME}).of(child.pid, Call("pause", (0,) * 6, timed=False))
        child.kill()
    assert (end.holders, end.outside) == ((), outside)


def test_of_a_wait_for_the_end_of_a_child_the_children_are_asked():
    """A loader's handler of SIGCHLD lets its process on when a worker has ended, and nobody else does."""
    program = "import signal\nsignal.signal(signal.SIGCHLD, print)\nprint(flush=True)\nsignal.pause()"
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        end = Ends({child.pid: ME, 4: child.pid}).of(child.pid, Call("pause", (0,) * 6, timed=False))
        child.kill()
    assert (end.holders, end.outside) == ((4,), False)


@pytest.mark.parametrize("name", ["read", "write", "poll"])
def test_a_named_pipe_may_be_opened_by_anybody_whoever_keeps_it_open_until_it_loses_its_name(name, tmp_path):
    path = tmp_path / "control"
    os.mkfifo(path)
    both = os.open(path, os.O_RDWR)
    polled = ctypes.create_string_buffer(struct.pack("=ihh", both, select.POLLIN, 0))
    arguments = (ctypes.addressof(polled), 1) if name == "poll" else (both, 0)
    waits = Call(name, (*arguments, 0, 0, 0, 0), timed=False)
    with locks(path.with_name("other"), f"keeps = open({str(path)!r}, 'r+b', 0)") as keeper:
        mine, held = Ends({ME: 1}).of(ME, waits), Ends({ME: 1, keeper: ME}).of(ME, waits)
        path.unlink()
        unnamed = Ends({ME: 1, keeper: ME}).of(ME, waits)
    os.close(both)
    by_both = tuple(sorted((ME, keeper)))
    ends = [(end.holders, end.outside) for end in (mine, held, unnamed)]
    assert ends == [((ME,), True), (by_both, True), (by_both, False)]


def test_what_is_polled_beside_more_than_are_looked_up_may_come_from_outside():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        polled = ctypes.create_string_buffer(struct.pack("=ihh", ours.fileno(), select.POLLIN, 0) * 257)
        few, many = (
            Ends({ME: 1}).of(ME, Call("poll", (ctypes.addressof(polled), count, 0, 0, 0, 0), timed=False))
            for count in (256, 257)
        )
        assert (few.holders, few.outside) == ((ME,), False)
        assert (many.holders, many.outside) == ((), None)


@pytest.mark.parametrize(
    ("sleep", "library"), [("time.sleep", ("python", "libpython")), ("ctypes.CDLL(None).sleep", ("libffi", "_ctypes"))]
)
def test_the_library_whose_code_sleeps_is_read_from_the_stack(sleep, library):
    code = f"import ctypes, threading, time; threading.Thread(target={sleep}, args=(60,)).start(); print(flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        found: set[str] = set()
        for _ in range(200):
            look = Proc().look(child.pid, id="look", t_s=0.0, ends=Ends({child.pid: ME}))
            found = {thread.library for thread in look.threads if thread.call == "clock_nanosleep"}
            if found:
                break
            time.sleep(0.01)
        child.kill()
    assert len(found) == 1
    assert found.pop().startswith(library)


def test_a_poll_that_was_stopped_and_goes_on_still_shows_what_it_waits_for():
    code = "import os, select; r, w = os.pipe(); p = select.poll(); p.register(r, 1); print(flush=True); p.poll()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()

        def look():
            return Proc().look(child.pid, id="look", t_s=0.0, ends=Ends({child.pid: ME})).threads[0]

        def until(comes):
            for _ in range(500):
                if comes(thread := look()):
                    break
                time.sleep(0.01)
            return thread

        try:
            before = until(lambda thread: thread.call == "poll")
            os.kill(child.pid, signal.SIGSTOP)
            until(lambda thread: thread.state == "T")
            os.kill(child.pid, signal.SIGCONT)
            until(lambda thread: thread.state == "S")
            after = until(lambda thread: "poll" in thread.wchan)
        finally:
            child.kill()
    assert (after.call, after.on, after.holders, after.timed) == ("poll", before.on, (child.pid,), False)


@pytest.mark.parametrize(
    ("write", "library"),
    [
        ("os.write(pipe, data)", ("python", "libpython")),
        ("ctypes.CDLL(None).write(pipe, data, len(data))", ("libffi", "_ctypes")),
    ],
)
def test_the_library_whose_code_writes_is_read_from_the_stack_of_the_main_thread_too(write, library):
    code = f"import ctypes, os; print(flush=True); pipe, data = os.pipe()[1], bytes(1 << 20); {write}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        called = ""
        for _ in range(200):
            (main,) = Proc().look(child.pid, id="look", t_s=0.0, ends=Ends({child.pid: ME})).threads
            called = main.library
            if main.call == "pipe-write":
                break
            time.sleep(0.01)
        child.kill()
    assert called.startswith(library)


@pytest.mark.parametrize(("ours", "has_guests"), [((ME,), False), ((), True)], ids=["own", "somebody else's"])
def test_a_server_of_several_connections_has_a_guest_where_one_comes_from_outside(server, client, ours, has_guests):
    with select.epoll() as polled:
        accepted, _ = server.accept()
        other = subprocess.Popen(["sleep", "60"], pass_fds=[client.fileno()])
        try:
            client.close()  # from now on the other end is only that process's
            for one in (server, accepted):
                polled.register(one.fileno())
            parents = {ME: 0, **dict.fromkeys([other.pid] if ours else [], ME)}
            end = Ends(parents).of(ME, Call("epoll_wait", (polled.fileno(), 0, 0, 0, 0, 0), timed=False))
        finally:
            other.kill()
            other.wait()
            accepted.close()
    assert end.has_guests is has_guests


def test_who_begins_a_program_waits_for_the_process_that_shall_run_it(tmp_path):
    os.mkfifo(tmp_path / "in")
    code = (
        "import os, subprocess, sys\n"
        "subprocess.Popen(['sleep', '60'])\n"
        f"opens = (os.POSIX_SPAWN_OPEN, 0, {str(tmp_path / 'in')!r}, 0, 0)\n"
        "os.posix_spawn('/bin/cat', ['cat'], {}, file_actions=[opens])"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        end, children, newborn = End(""), [], 0
        for _ in range(500):
            children = psutil.Process(parent.pid).children()
            parents = {parent.pid: ME, **{child.pid: parent.pid for child in children}}
            look = Proc().look(parent.pid, id="look", t_s=0.0, ends=Ends(parents))
            (thread,) = look.threads
            if thread.call in BEGINS and len(children) == 2:
                end = End(thread.call, thread.on, thread.holders, thread.outside)
                newborn = max(children, key=lambda child: child.create_time()).pid
                break
            time.sleep(0.01)
        for child in children:
            child.kill()
        parent.kill()
    assert (end.on, end.holders, end.outside) == (f"child {newborn} to begin its program", (newborn,), False)
    assert thread.state == "D"


def test_the_library_whose_thread_listens_is_read_from_the_stack():
    code = (
        "import ctypes, socket, threading; s = socket.create_server(('', 0)); listens = ctypes.CDLL(None).accept\n"
        "threading.Thread(target=listens, args=(s.fileno(), None, None)).start(); print(flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        listening: list[str] = []
        for _ in range(200):
            look = Proc().look(child.pid, id="look", t_s=0.0, ends=Ends({child.pid: ME}))
            listening = [thread.library for thread in look.threads if thread.call == "accept"]
            if listening:
                break
            time.sleep(0.01)
        child.kill()
    assert len(listening) == 1
    assert listening[0].startswith(("libffi", "_ctypes"))


def end_of_lock(address, pid=ME, *, child=ME):
    return Ends({child: ME, ME: 0}).of(pid, Call("futex", (address, 0, 0, 0, 0, 0), timed=False))


def test_a_lock_of_multiprocessing_is_ended_by_no_other_program():
    """A child that was started afresh finds it by its name, which is made up, and told to nobody else."""
    lock = multiprocessing.get_context("spawn").Lock()
    opens = "import sys, _multiprocessing as m; l = m.SemLock._rebuild(0, 1, 1, sys.argv[1])"
    asked = [sys.executable, "-c", f"{opens}; print(l.handle, flush=True); input()", lock._semlock.name]
    with subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        there = int(child.stdout.readline())
        ends = [end_of_lock(lock._semlock.handle, child=child.pid), end_of_lock(there, child.pid, child=child.pid)]
        child.communicate(b"\n")
    assert [(end.call, end.outside) for end in ends] == [("futex-shared", False)] * 2
    assert [end.holders for end in ends] == [(child.pid,), (ME,)]


def test_a_lock_in_a_file_may_be_ended_by_any_program_that_opens_it_or_had_it_open(tmp_path):
    path = tmp_path / "lock"
    path.write_bytes(bytes(64))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 64) as memory:
        word = ctypes.c_uint32.from_buffer(memory)
        end = end_of_lock(ctypes.addressof(word))
        path.unlink()
        nameless = end_of_lock(ctypes.addressof(word))
        del word
    assert (end.call, end.outside, nameless.outside) == ("futex-shared", True, True)


@pytest.mark.parametrize("handed_out", [True, False], ids=["memfd", "no file"])
def test_memory_that_may_have_been_handed_to_another_program_may_be_changed_by_it(handed_out):
    """A descriptor goes through a socket, and needs to be open nowhere once both have mapped it."""
    fd = os.memfd_create("batches") if handed_out else -1
    if handed_out:
        os.truncate(fd, 4096)
    with mmap.mmap(fd, 4096) as memory:
        if handed_out:
            os.close(fd)
        word = ctypes.c_uint32.from_buffer(memory)
        end = end_of_lock(ctypes.addressof(word))
        del word
    assert (end.call, end.outside) == ("futex-shared", handed_out)


@pytest.fixture
def libc():
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sem_open.restype = libc.shmat.restype = ctypes.c_void_p
    libc.shmdt.argtypes = [ctypes.c_void_p]
    return libc


def test_any_program_may_open_a_semaphore_by_its_name(libc):
    """The C library makes it under another name and links it, so that the kernel calls it deleted while it is not."""
    name = f"/nsa-harness-test-{ME}".encode()
    semaphore = libc.sem_open(name, os.O_CREAT, 0o600, ctypes.c_uint(0))
    named = end_of_lock(semaphore)
    libc.sem_unlink(name)
    nameless = end_of_lock(semaphore)
    assert (named.call, named.outside, nameless.outside) == ("futex-shared", True, False)


BY_ITS_OWN_CODE = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.sem_open.restype = ctypes.c_void_p
name = b"/nsa-harness-test-%d" % os.getpid()
semaphore = ctypes.c_void_p(libc.sem_open(name, os.O_CREAT, 0o600, 0))
libc.sem_unlink(name)
print(flush=True)
libc.sem_wait(semaphore)
"""
BY_MULTIPROCESSING = "import multiprocessing as m; l = m.Lock(); l.acquire(); print(flush=True); l.acquire()"


@pytest.mark.parametrize(("code", "outside"), [(BY_ITS_OWN_CODE, True), (BY_MULTIPROCESSING, False)])
def test_a_semaphore_without_a_name_may_have_been_opened_before_it_lost_that(code, outside):
    """Multiprocessing alone takes the name away before it could be told to anybody."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        waits = []
        for _ in range(200):
            look = Proc().look(child.pid, id="look", t_s=0.0, ends=Ends({child.pid: ME}))
            waits = [thread.outside for thread in look.threads if thread.call == "futex-shared"]
            if waits:
                break
            time.sleep(0.01)
        child.kill()
    assert waits == [outside]


@pytest.mark.parametrize("keyed", [False, True])
def test_any_program_may_have_shared_memory_of_a_key_or_of_a_number(libc, keyed):
    key = 0x4E534100 + ME % 256 if keyed else 0
    segment = libc.shmget(key, 4096, 0o1600)
    address = libc.shmat(segment, None, 0)
    end = end_of_lock(address)
    libc.shmdt(address)
    libc.shmctl(segment, 0, None)
    assert (end.call, end.outside) == ("futex-shared", True)


@contextmanager
def locks(path, code):
    """A process with descriptor 3 open on ``path`` that has run ``code``, its PID."""
    code = f"import fcntl, struct, sys; file = open({str(path)!r}, 'a'); {code}; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        yield child.pid
        child.kill()


@contextmanager
def waits_for(path, code):
    """The same of one that does not come to the end of ``code``."""
    code = f"import fcntl, struct; file = open({str(path)!r}, 'a'); {code}"
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        while child.poll() is None and not {"flock", "fcntl"}.intersection(Proc().calls(child.pid)):
            time.sleep(0.01)
        yield child.pid
        child.kill()


RANGE = "struct.pack('hhqqi4x', 1, 0, %d, 1, 0)"
"""One byte of a file, as the lock of an open file asks for it (``F_OFD_SETLKW``, 38)."""


def test_a_lock_on_a_file_that_an_ended_process_took_is_held_by_who_has_it_open(tmp_path):
    """``flock 9`` takes it for the shell that opened descriptor 9, and ends: /proc/locks goes on naming the dead."""
    path = tmp_path / "lock"
    with path.open("w") as file:
        subprocess.run(["flock", str(file.fileno())], pass_fds=[file.fileno()], check=True)
        with waits_for(path, "fcntl.flock(file, fcntl.LOCK_EX)") as waiter:
            end = Ends({ME: 0, waiter: ME}).of(waiter, Call("flock", (3, 0, 0, 0, 0, 0), timed=False))
            assert (end.call, end.holders, end.outside) == ("flock", (ME,), False)


def test_a_lock_that_a_process_took_by_another_open_file_is_held_by_itself(tmp_path):
    with waits_for(tmp_path / "lock", "other = open(file.name); fcntl.flock(other, 2); fcntl.flock(file, 2)") as waiter:
        end = Ends({waiter: ME}).of(waiter, Call("flock", (3, 0, 0, 0, 0, 0), timed=False))
    assert (end.holders, end.outside) == ((waiter,), False)
    assert "held by this process itself" in str(end)


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("fcntl.lockf(file, 2, 10, 0)", "fcntl.lockf(file, 2, 10, 100)"),
        ("fcntl.flock(file, 2)", "fcntl.lockf(file, 2)"),
        (f"fcntl.fcntl(file, 38, {RANGE % 0})", f"fcntl.fcntl(file, 38, {RANGE % 8})"),
    ],
)
def test_of_several_locks_on_a_file_whoever_has_the_one_that_is_waited_for_ends_the_wait(
    ours, theirs, outside, tmp_path
):
    """A range of it, say, or one of the other kind: whose process has a lock on that file too has not this one."""
    path = tmp_path / "lock"
    with locks(path, theirs) as holder, waits_for(path, f"{ours}; {theirs}") as waiter:
        parents = {waiter: ME} if outside else {waiter: ME, holder: ME}
        end = Ends(parents).of(waiter, Call("fcntl", (3, 0, 0, 0, 0, 0), timed=False))
    assert (end.holders, end.outside) == ((), True) if outside else ((holder,), False)


@pytest.mark.parametrize(("kind", "asks"), [("ext4", True), ("fuse.gcsfuse", False), ("nfs4", False)])
def test_a_file_system_that_another_program_serves_is_asked_nothing(kind, asks, tmp_path, monkeypatch):
    """It may be what does not answer, and whoever asks it then does not come back either."""
    asked = []
    monkeypatch.setattr("harness.observe.ends.os.stat", lambda path, **_: asked.append(path) or os.lstat(tmp_path))
    (tmp_path / "7/fdinfo").mkdir(parents=True)
    (tmp_path / "7/fd").mkdir()
    (tmp_path / "7/fd/3").symlink_to("/bucket/shard")
    (tmp_path / "7/fdinfo/3").write_text("pos:\t0\nflags:\t0100000\nmnt_id:\t27\n")
    (tmp_path / "7/mountinfo").write_text(f"27 1 0:52 / /bucket rw,relatime shared:1 - {kind} bucket rw\n")
    Ends({7: 0}, files=Files(str(tmp_path))).of(7, Call("read", (3, 0, 0, 0, 0, 0), timed=False))
    assert bool(asked) is asks


def test_of_a_process_that_has_ended_and_was_not_asked_for_nothing_is_read_and_nothing_raised():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert Files().text(f"{pid}/mountinfo") is None  # the kernel answers EINVAL
    finally:
        os.waitpid(pid, 0)


def test_that_no_descriptor_of_ours_is_free_is_no_end_of_a_process(monkeypatch):
    monkeypatch.setattr(os, "open", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
    with pytest.raises(OSError, match="Too many open files"):
        Files().text(f"{ME}/stat")


@pytest.mark.parametrize(("waits", "target"), [(20388, 20389), (20389, 7)])
def test_a_wait_for_one_child_names_it_as_its_parent_does_in_a_container_or_around_one(waits, target, tmp_path):
    for pid, numbers in {20388: "20388", 20389: "20389 1", 20390: "20390 7"}.items():
        (tmp_path / f"{pid}").mkdir()
        (tmp_path / f"{pid}/status").write_text(f"NSpid:\t{numbers}\n")
    ends = Ends({20388: 1, 20389: 20388, 20390: 20389}, files=Files(str(tmp_path)))
    end = ends.of(waits, Call("wait4", (target, 0, 0, 0, 0, 0), timed=False))
    assert (end.on, end.holders, end.outside) == (f"child {waits + 1}", (waits + 1,), False)


@pytest.mark.parametrize(("depth", "library"), [(7112, "libdns.so"), (1 << 18, "")])
def test_the_library_that_asks_for_a_name_is_read_from_below_what_the_c_library_needs_for_that(
    depth, library, tmp_path
):
    (tmp_path / "7").mkdir()
    maps = "1000-2000 r-xp 0 fe:00 9 /lib/libc.so.6\n4000-5000 r-xp 0 fe:00 8 /opt/libdns.so\n"
    (tmp_path / "7/maps").write_text(maps)
    with (tmp_path / "7/mem").open("wb") as memory:
        memory.seek(1 << 16)
        memory.write(struct.pack("=Q", 0x1234))
        memory.seek((1 << 16) + depth)
        memory.write(struct.pack("=Q", 0x4321))
        memory.truncate(1 << 20)
    call = Call("poll", (0, 1, 5000, 0, 0, 0), timed=True, stack=1 << 16)
    assert Ends({7: 1}, files=Files(str(tmp_path))).library(7, call) == library
