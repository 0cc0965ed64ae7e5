from __future__ import annotations

import json
import subprocess
import sys

from harness.worker.world import own_share

CODE = """
import json, os, subprocess, sys
from harness.launch.server import overwrite
from harness.worker.world import variables
try:
    overwrite("NSA_TEST", "longer than it was")
except ValueError as error:
    refused = str(error)
overwrite("NSA_TEST", "middle")
overwrite("NSA_TEST", "after!")
own = open("/proc/self/environ").read().split("\\0")
child = subprocess.run(["env"], capture_output=True, text=True).stdout.split("\\n")
pid = os.fork()
if pid == 0:
    os._exit("NSA_TEST=after!" not in open("/proc/self/environ").read().split("\\0"))
forked = os.waitpid(pid, 0)[1]
print(json.dumps(dict(refused=refused, own=own, child=child, forked=forked, seen=variables("NSA_"))))
"""


def test_an_overwritten_variable_is_seen_by_the_kernel_by_children_and_by_forks():
    done = subprocess.run(
        [sys.executable, "-P", "-c", CODE],
        env={"NSA_TEST": "before", "PATH": "/usr/bin:/bin", "OTHER": "x"},
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout)

    assert "NSA_TEST=after!" in said["own"]
    assert "NSA_TEST=before" not in said["own"]
    assert "NSA_TEST=after!" in said["child"]
    assert said["forked"] == 0
    assert said["seen"] == {"NSA_TEST": "after!"}
    assert "must be in the environment" in said["refused"]


def test_a_job_of_several_nodes_around_the_controller_gives_a_trial_no_share_of_its_ranks(monkeypatch):
    for name, text in {"GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "n0", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, text)
    assert own_share().ranks(4) == range(4)

    monkeypatch.setenv("NSA_HARNESS_PART", "1")
    monkeypatch.setenv("NSA_HARNESS_PARTS", "2")
    assert own_share().ranks(4) == range(2, 4)
