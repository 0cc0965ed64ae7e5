"""A real Slurm of two nodes on one machine: ``python -m harness.testing.cluster [COMMAND...]``.

Each node is a slurmd in PID, mount, UTS and network namespaces of its own, so that it is a host as far as a process
can tell: another host name, PIDs that mean nothing here, an address behind a bridge. munged and slurmctld run beside
them, with keys, sockets and state in a folder that is gone afterwards. COMMAND (default: a shell) finds ``srun`` and
SLURM_CONF set; when it ends everything is ended: when the init of a namespace dies the kernel kills all within.

Needs root, iproute2, util-linux and Debian's slurm-wlm and munge; :func:`refusal` says what is missing.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.settings import surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sinfo", "ip", "unshare")
UP_S = 30.0
INSTALL = "apt-get update && apt-get install -y --no-install-recommends slurm-wlm munge iproute2"

CONF = """\
ClusterName=pair
SlurmctldHost={host}({gateway})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge/socket
CredType=cred/munge
SlurmctldPort={port}
SlurmdPort={slurmd}
SlurmctldPidFile={place}/ctld.pid
SlurmdPidFile={place}/%n.pid
SlurmdSpoolDir={place}/spool-%n
StateSaveLocation={place}/state
SlurmctldLogFile={place}/ctld.log
SlurmdLogFile={place}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
GresTypes=token
ReturnToService=2
SlurmdTimeout=10
SlurmdParameters=config_overrides
KillWait=5
InactiveLimit=0
{nodes}
PartitionName=pair Nodes={names} Default=YES MaxTime=60 State=UP OverSubscribe=YES
"""


def refusal() -> str:
    """Why no such Slurm can be had here, and what to do; empty when it can."""
    path = f"{os.defpath}:/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return f"no {', '.join(missing)} here; on Debian: {INSTALL}"
    if os.geteuid() != 0:
        return "namespaces and slurmd need root"
    tried = subprocess.run(["unshare", "-pfnum", "--mount-proc", "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no namespaces can be made here: {tried.stderr.strip()}"


@dataclass(slots=True)
class Cluster:
    """The cluster in ``place``; ``inits`` are the first processes of the nodes' namespaces, by node."""

    place: Path
    net: int
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])
    inits: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])

    @property
    def environment(self) -> dict[str, str]:
        """What a command needs to use it."""
        path = dict(surroundings()).get("PATH", os.defpath)
        return {"SLURM_CONF": str(self.place / "slurm.conf"), "PATH": f"{path}:/usr/sbin:/sbin"}

    @property
    def bridge(self) -> str:
        """The bridge that all nodes are on."""
        return f"nsab{self.net}"

    def start_node(self, node: str, number: int) -> None:
        """Boot a node: namespaces, an address, a name, slurmd."""
        where = f"nsav{self.net}{node}"
        script = (
            f"hostname {node} && mount --bind {self.place}/hosts /etc/hosts && "
            f"while ! ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done && "
            f"ip link set lo up && ip addr add 10.{self.net}.0.{number}/24 dev eth0 && ip link set eth0 up && "
            f"slurmd -N {node} -f {self.place}/slurm.conf -D & trap 'exit 0' TERM; while :; do wait; sleep 0.2; done"
        )
        self.inits[node] = subprocess.Popen(
            ["unshare", "-pfnum", "--mount-proc", "--kill-child", "sh", "-c", script],
            env={**dict(surroundings()), **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until_s = time.monotonic() + UP_S
        while not (inside := _inside(self.inits[node])):
            assert time.monotonic() < until_s, f"the namespaces of {node} were not made"
            time.sleep(0.02)  # noqa: TID251 - a deadline
        _run("ip", "link", "add", where, "type", "veth", "peer", "name", "eth0", "netns", str(inside))
        _run("ip", "link", "set", where, "master", self.bridge, "up")


def _inside(unshare: subprocess.Popen[bytes]) -> int:
    """The PID here of a namespace's init, the child of ``unshare``; 0 while there is none."""
    path = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
    words = path.read_text().split() if path.exists() else []
    if not words or os.readlink(f"/proc/{words[0]}/ns/net") == os.readlink("/proc/self/ns/net"):  # noqa: PTH115
        return 0
    return int(words[0])


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")


@contextmanager
def slurm(names: Sequence[str] = ("n1", "n2")) -> Iterator[Cluster]:
    """A cluster that is up; ended completely when the block is left.

    Raises:
        RuntimeError: it did not come up; the message ends with its log.
    """
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nsa-harness-slurm-")))
        cluster = Cluster(place=place, net=20 + secrets.randbelow(200))
        stack.callback(_end, cluster)
        gateway, host = f"10.{cluster.net}.0.254", os.uname().nodename
        rows = [(name, f"10.{cluster.net}.0.{number}") for number, name in enumerate(names, start=1)]
        nodes = [f"NodeName={n} NodeAddr={a} NodeHostname={n} CPUs=8 Gres=token:8 State=UNKNOWN" for n, a in rows]
        (place / "hosts").write_text(
            "127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for n, a in [*rows, (host, gateway)])
        )
        text = CONF.format(
            host=host, gateway=gateway, place=place, port=16000 + cluster.net, slurmd=17000 + cluster.net,
            nodes="\n".join(nodes), names=",".join(names),
        )  # fmt: skip
        (place / "slurm.conf").write_text(text)
        (place / "gres.conf").write_text("Name=token Count=8\n")
        (place / "cgroup.conf").write_text("CgroupAutomount=no\n")
        for folder in ("munge", "state", *(f"spool-{name}" for name in names)):
            (place / folder).mkdir(mode=0o700)
        place.chmod(0o755)
        (place / "munge").chmod(0o755)
        _run("ip", "link", "add", cluster.bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{gateway}/24", "dev", cluster.bridge)
        _run("ip", "link", "set", cluster.bridge, "up")
        _start_munge(cluster)
        env = {**dict(surroundings()), **cluster.environment}
        ctld = ["slurmctld", "-D", "-f", str(place / "slurm.conf")]
        cluster.daemons.append(subprocess.Popen(ctld, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for number, name in enumerate(names, start=1):
            cluster.start_node(name, number)
        _await_up(cluster, len(names), env)
        yield cluster


def _start_munge(cluster: Cluster) -> None:
    folder = cluster.place / "munge"
    key = folder / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    options = [f"--{name}={folder / name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
    command = ["munged", "-F", "--force", f"--key-file={key}", *options]
    null = subprocess.DEVNULL
    env = {**dict(surroundings()), **cluster.environment}
    cluster.daemons.append(subprocess.Popen(command, env=env, stdin=null, stdout=null, stderr=null))


def _await_up(cluster: Cluster, count: int, env: dict[str, str]) -> None:
    until_s = time.monotonic() + UP_S
    while time.monotonic() < until_s:
        seen = subprocess.run(
            ["sinfo", "-h", "-t", "idle", "-o", "%D"], env=env, capture_output=True, text=True, check=False
        )
        if seen.stdout.strip() == str(count):
            return
        time.sleep(0.2)  # noqa: TID251 - a deadline
    logs = "\n".join(f"{p.name}: {p.read_text()[-1500:]}" for p in sorted(cluster.place.glob("*.log")))
    raise RuntimeError(f"Slurm did not come up in {UP_S:g} s\n{logs}")


def _end(cluster: Cluster) -> None:
    """Nothing of it is left: namespaces first, since whatever ran in them dies with their init."""
    for unshare in cluster.inits.values():
        inside = _inside(unshare) if unshare.poll() is None else 0
        if inside:
            os.kill(inside, signal.SIGKILL)
        unshare.kill()
        unshare.wait()
    for daemon in reversed(cluster.daemons):
        daemon.terminate()
    for daemon in cluster.daemons:
        try:
            daemon.wait(10.0)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
    subprocess.run(["ip", "link", "del", cluster.bridge], capture_output=True, check=False)


def main() -> int:
    """Run a command with a cluster around it."""
    why = refusal()
    if why:
        sys.stderr.write(f"no Slurm can be started here: {why}\n")
        return 6
    with slurm() as cluster:
        shell = dict(surroundings()).get("SHELL", "sh")
        return subprocess.call(sys.argv[1:] or [shell], env={**dict(surroundings()), **cluster.environment})


if __name__ == "__main__":
    sys.exit(main())
