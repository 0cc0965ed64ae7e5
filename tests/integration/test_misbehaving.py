"""Programs that hide where they hang: in a daemon, behind exec, in a chain of forks, beside 1,000 threads."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HANG = """
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""
PROGRAMS = {
    "in a daemon": """
import os, threading
read, write = os.pipe()
print("step 1", flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(read)
        {hang}
    os._exit(0)
os.wait()
os.close(write)
os.read(read, 1)
""".replace("{hang}", HANG.strip().replace("\n", "\n        ")),
    "behind exec": """
import os, sys, threading
if len(sys.argv) == 1:
    os.execv(sys.executable, [sys.executable, __file__, "again"])
print("step 1", flush=True)
"""
    + HANG,
    "in a chain of forks": """
import os, threading
print("step 1", flush=True)
for _ in range(5):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os._exit(0)
"""
    + HANG,
    "beside 1,000 threads": """
import threading
threading.stack_size(1 << 16)
over = threading.Event()
for _ in range(1000):
    threading.Thread(target=over.wait, daemon=True).start()
print("step 1", flush=True)
"""
    + HANG,
    "beside a thread that only sleeps": """
import threading, time
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("step 1", flush=True)
"""
    + HANG,
    "beside a child that only sleeps": """
import subprocess, threading
subprocess.Popen(["sleep", "1000"])
print("step 1", flush=True)
"""
    + HANG,
    "beside a daemon that only sleeps": """
import os, threading
print("step 1", flush=True)
if os.fork() == 0:
    os.setsid()
    os.execv("/bin/sleep", ["sleep", "1000"])
"""
    + HANG,
}
HEALTHY = {
    "waits for a thread that only sleeps": """
import threading, time
print("step 1", flush=True)
one = threading.Thread(target=time.sleep, args=(20,))
one.start()
one.join()
""",
    "waits for a thread that waits for one that only sleeps": """
import threading, time
print("step 1", flush=True)
lock = threading.Lock()
lock.acquire()
one = threading.Thread(target=time.sleep, args=(20,))
one.start()
def give_back():
    one.join()
    lock.release()
threading.Thread(target=give_back).start()
lock.acquire()
""",
    "waits for a thread that sleeps and then gives back": """
import threading, time
print("step 1", flush=True)
lock = threading.Lock()
lock.acquire()
def give_back():
    time.sleep(20)
    lock.release()
threading.Thread(target=give_back).start()
lock.acquire()
""",
    "ends when a thread that only sleeps has ended": """
import threading, time
print("step 1", flush=True)
threading.Thread(target=time.sleep, args=(20,)).start()
""",
}


@pytest.mark.long
@pytest.mark.parametrize("where", PROGRAMS)
def test_a_hang_is_told_wherever_it_hides(tmp_path, where):
    (tmp_path / "train.py").write_text(PROGRAMS[where])
    command = [
        sys.executable,
        "-P",
        "-m",
        "harness",
        "run",
        "--json",
        "--limit",
        "60s",
        "--",
        sys.executable,
        "train.py",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stderr
    (record,) = json.loads(done.stdout)["trials"]
    assert (record["verdict"]["kind"], record["verdict"]["cause"]) == ("HANG", "deadlock")
    assert record["outcome"]["cleanup"]["survivors"] == []


@pytest.mark.long
@pytest.mark.parametrize("how", HEALTHY)
def test_who_waits_for_a_sleep_is_not_called_a_hang(tmp_path, how):
    (tmp_path / "train.py").write_text(HEALTHY[how])
    command = [sys.executable, "-P", "-m", "harness", "run", "--json", "--", sys.executable, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
