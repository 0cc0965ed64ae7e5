"""A real Slurm or Ray of two nodes on one machine: ``python -m harness.testing.cluster slurm|ray [COMMAND...]``.

Each node is a slurmd or a raylet in PID, mount, UTS and network namespaces of its own, so that it is a host as far as a
process can tell: another host name, PIDs that mean nothing here, an address behind a bridge. What leads them (munged
and slurmctld, or Ray's head without a CPU) runs beside them, with keys, sockets and state in a folder that is gone
afterwards. COMMAND (default: a shell) finds ``srun`` and SLURM_CONF, or RAY_ADDRESS set; when it ends everything is
ended: when the init of a namespace dies the kernel kills all within.

Needs root, iproute2, util-linux, and Debian's slurm-wlm and munge or the package ray; :func:`refusal` says what is
missing.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from harness.settings import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

PROGRAMS = {"slurm": ("slurmctld", "slurmd", "munged", "srun", "sinfo"), "ray": ()}
NAMESPACES = ("ip", "unshare", "nsenter")
UP_S = 300.0
"""Quiet cores need 1 s for a Slurm and 20 s for a Ray; busy ones much more."""

INSTALL = "apt-get update && apt-get install -y --no-install-recommends slurm-wlm munge iproute2"
RAY = (sys.executable, "-m", "ray.scripts.scripts")
"""Ray's command line, of the environment that this runs in."""

RAY_IS_UP = "Ray runtime started"
STORE = "--object-store-memory=80000000"
"""Agents put no objects into Ray."""

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


def refusal(engine: str = "slurm") -> str:
    """Why no such cluster can be had here, and what to do; empty when it can."""
    path = f"{os.defpath}:/usr/sbin:/sbin"
    missing = [name for name in (*PROGRAMS[engine], *NAMESPACES) if shutil.which(name, path=path) is None]
    if missing:
        return f"no {', '.join(missing)} here; on Debian: {INSTALL}"
    if engine == "ray" and find_spec("ray") is None:
        return f"no package ray here: {sys.executable} -m pip install ray"
    if os.geteuid() != 0:
        return "namespaces need root"
    tried = subprocess.run(["unshare", "-pfnum", "--mount-proc", "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no namespaces can be made here: {tried.stderr.strip()}"


@dataclass(slots=True)
class Cluster:
    """The cluster in ``place``; ``inits`` are the first processes of the nodes' namespaces, by node.

    ``serves`` is a node's daemon, as a shell understands it: it finds its own ``$node`` and ``$address``.
    """

    place: Path
    net: int
    environment: dict[str, str]
    serves: str = ""
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])
    inits: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])

    @property
    def bridge(self) -> str:
        """The bridge that all nodes are on."""
        return f"nsab{self.net}"

    @property
    def gateway(self) -> str:
        """The address of this machine on it."""
        return f"10.{self.net}.0.254"

    def start_daemon(self, *argv: str) -> None:
        """Start a daemon beside the nodes."""
        env = {**dict(surroundings()), **self.environment}
        with (self.place / f"daemon{len(self.daemons)}.out").open("wb") as log:
            self.daemons.append(subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def start_nodes(self, names: Sequence[str]) -> None:
        """Boot nodes: namespaces, an address, a name, the daemon."""
        rows = [(name, f"10.{self.net}.0.{number}") for number, name in enumerate(names, start=1)]
        hosts = [("localhost", "127.0.0.1"), *rows, (os.uname().nodename, self.gateway)]
        (self.place / "hosts").write_text("".join(f"{address} {name}\n" for name, address in hosts))
        (self.place / "resolv.conf").write_text("nameserver 127.0.0.1\n")  # there is none, and nobody waits for it
        for name, address in rows:
            self._start_node(name, address)

    def _start_node(self, node: str, address: str) -> None:
        script = (
            f"node={node} address={address}; hostname $node && mount --bind {self.place}/hosts /etc/hosts && "
            f"mount --bind {self.place}/resolv.conf /etc/resolv.conf && "
            f"while ! ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done && "
            f"ip link set lo up && ip addr add $address/24 dev eth0 && ip link set eth0 up && "
            f"ip route add default via {self.gateway} && "
            f"trap 'exit 0' TERM; while :; do {self.serves} & wait; sleep 0.5; done"  # started again, as hosts do
        )
        with (self.place / f"{node}.out").open("wb") as log:
            self.inits[node] = subprocess.Popen(
                ["unshare", "-pfnum", "--mount-proc", "--kill-child", "sh", "-c", script],
                env={**dict(surroundings()), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until_s = time.monotonic() + UP_S
        while not (inside := _inside(self.inits[node])):
            assert time.monotonic() < until_s, f"the namespaces of {node} were not made"
            time.sleep(0.02)  # noqa: TID251 - a deadline
        _run("ip", "link", "add", self._end_of(node), "type", "veth", "peer", "name", "eth0", "netns", str(inside))
        _run("ip", "link", "set", self._end_of(node), "master", self.bridge, "up")

    def _end_of(self, node: str) -> str:
        """This machine's end of a node's cable."""
        return f"nsav{self.net}{node}"

    def cut(self, node: str) -> None:
        """Pull out a node's cable."""
        _run("ip", "link", "set", self._end_of(node), "down")

    def heal(self, node: str) -> None:
        """Plug it in again."""
        _run("ip", "link", "set", self._end_of(node), "up")

    def kill_daemon(self, node: str) -> None:
        """SIGKILL to a node's slurmd or raylet; whatever it has started is left to itself."""
        name = "raylet" if "RAY_ADDRESS" in self.environment else "slurmd"
        members = _members(_inside(self.inits[node]))
        daemons = [pid for pid in members if Path(f"/proc/{pid}/comm").read_text().strip() == name]
        assert daemons, f"{node} has no {name}"
        for pid in daemons:
            os.kill(pid, signal.SIGKILL)

    def kill_node(self, node: str) -> None:
        """Switch a node off."""
        os.kill(_inside(self.inits[node]), signal.SIGKILL)


def _inside(unshare: subprocess.Popen[bytes]) -> int:
    """The PID here of a namespace's init, the child of ``unshare``; 0 while there is none."""
    path = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
    words = path.read_text().split() if path.exists() else []
    if not words or _namespace(words[0], "net") in ("", _namespace("self", "net")):
        return 0
    return int(words[0])


def _members(init: int) -> list[int]:
    """The PIDs here of the processes in the namespace of ``init``."""
    folders = Path("/proc").glob("[0-9]*")
    return [int(path.name) for path in folders if _namespace(path.name, "pid") == _namespace(init, "pid") != ""]


def _namespace(pid: int | str, kind: str) -> str:
    """What the kernel calls a namespace of ``pid``; empty when that has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")  # noqa: PTH115 - it is no path
    except OSError:
        return ""


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")


@contextmanager
def _network(engine: str, environment: dict[str, str]) -> Generator[Cluster]:
    """A folder and a bridge for a cluster; ended completely when the block is left."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"nsa-{engine}-")))
        place.chmod(0o755)
        taken = {name for _, name in socket.if_nameindex()}
        net = secrets.choice([number for number in range(20, 220) if f"nsab{number}" not in taken])
        cluster = Cluster(place=place, net=net, environment=environment)
        stack.callback(_end, cluster)
        _run("ip", "link", "add", cluster.bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{cluster.gateway}/24", "dev", cluster.bridge)
        _run("ip", "link", "set", cluster.bridge, "up")
        yield cluster


@contextmanager
def slurm(names: Sequence[str] = ("n1", "n2")) -> Generator[Cluster]:
    """A Slurm that is up; ended completely when the block is left.

    Raises:
        RuntimeError: it did not come up; the message ends with its log.
    """
    path = dict(surroundings()).get("PATH", os.defpath)
    with _network("slurm", {"PATH": f"{path}:/usr/sbin:/sbin"}) as cluster:
        place = cluster.place
        conf = place / "slurm.conf"
        cluster.environment["SLURM_CONF"] = str(conf)
        cluster.serves = f"slurmd -N $node -f {conf} -D"
        node = "NodeName={0} NodeAddr=10.{1}.0.{2} NodeHostname={0} CPUs=8 Gres=token:8 State=UNKNOWN"
        nodes = [node.format(name, cluster.net, number) for number, name in enumerate(names, start=1)]
        text = CONF.format(
            host=os.uname().nodename, gateway=cluster.gateway, place=place, port=16000 + cluster.net,
            slurmd=17000 + cluster.net, nodes="\n".join(nodes), names=",".join(names),
        )  # fmt: skip
        conf.write_text(text)
        (place / "gres.conf").write_text("Name=token Count=8\n")
        (place / "cgroup.conf").write_text("CgroupAutomount=no\n")
        for folder in ("munge", "state", *(f"spool-{name}" for name in names)):
            (place / folder).mkdir(mode=0o700)
        _start_munge(cluster)
        cluster.start_daemon("slurmctld", "-D", "-f", str(conf))
        cluster.start_nodes(names)
        _await(cluster, lambda: _idle(cluster) == len(names))
        yield cluster


def _start_munge(cluster: Cluster) -> None:
    folder = cluster.place / "munge"
    folder.chmod(0o755)
    key = folder / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    options = [f"--{name}={folder / name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
    cluster.start_daemon("munged", "-F", "--force", f"--key-file={key}", *options)


@contextmanager
def ray(names: Sequence[str] = ("n1", "n2")) -> Generator[Cluster]:
    """A Ray that is up: two nodes of two CPUs, and a head without any on this machine; ended as a Slurm is.

    Raises:
        RuntimeError: it did not come up; the message ends with its log.
    """
    # Else each node starts a Python for each of its CPUs before anybody asks.
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_enable_worker_prestart": "0"}
    with _network("ray", quiet) as cluster:
        address = f"{cluster.gateway}:{6400 + cluster.net}"
        cluster.environment["RAY_ADDRESS"] = address
        (cluster.place / "ray").mkdir()
        start = " ".join([*RAY, "start", "--block", "--num-gpus=0", "--include-log-monitor=false", STORE])
        head = (
            f"--head --num-cpus=0 --node-ip-address={cluster.gateway} --port={6400 + cluster.net} --temp-dir="
            f"{cluster.place}/ray --ray-client-server-port={6700 + cluster.net} --include-dashboard=false"
        )
        until = "until {}; do sleep 0.5; done"  # a busy machine takes longer than Ray waits for itself
        init = ["sh", "-c", until.format(f"{start} {head}")]
        cluster.start_daemon("unshare", "-pf", "--mount-proc", "--kill-child", *init)
        _await(cluster, lambda: RAY_IS_UP in (cluster.place / "daemon0.out").read_text())
        node = f"--num-cpus=2 --node-ip-address=$address --resources='{{\"token\": 8}}' --address={address}"
        # Nodes share no folder of Ray's.
        cluster.serves = f"{{ mount -t tmpfs none {cluster.place}/ray; {until.format(f'{start} {node}')}; }}"
        cluster.start_nodes(names)
        _await(cluster, lambda: all(RAY_IS_UP in (cluster.place / f"{name}.out").read_text() for name in names))
        yield cluster


def _await(cluster: Cluster, is_up: Callable[[], bool]) -> None:
    """Wait until something holds.

    Raises:
        RuntimeError: it did not for long; the message ends with the logs.
    """
    until_s = time.monotonic() + UP_S
    while not is_up():
        if time.monotonic() > until_s:
            written = sorted([*cluster.place.glob("*.log"), *cluster.place.glob("*.out")])
            logs = "\n".join(f"{p.name}: {p.read_text(errors='replace')[-1500:]}" for p in written)
            raise RuntimeError(f"the cluster did not come up in {UP_S:g} s\n{logs}")
        time.sleep(0.2)  # noqa: TID251 - a deadline


def _idle(cluster: Cluster) -> int:
    """How many nodes of a Slurm have nothing to do."""
    env = {**dict(surroundings()), **cluster.environment}
    ask = ["sinfo", "-h", "-t", "idle", "-o", "%D"]
    asked = subprocess.run(ask, env=env, capture_output=True, text=True, check=False).stdout.strip()
    return int(asked) if asked.isdigit() else 0


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


CLUSTERS = {"slurm": slurm, "ray": ray}


def main() -> int:
    """Run a command with a cluster around it."""
    engine, *command = sys.argv[1:] or [""]
    if engine not in CLUSTERS:
        sys.stderr.write("usage: python -m harness.testing.cluster slurm|ray [COMMAND...]\n")
        return 2
    why = refusal(engine)
    if why:
        sys.stderr.write(f"no {engine} can be started here: {why}\n")
        return 6
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))  # the cluster is ended with us
    with CLUSTERS[engine]() as cluster:
        env = {**dict(surroundings()), **cluster.environment}
        return subprocess.call(command or [env.get("SHELL", "sh")], env=env)


if __name__ == "__main__":
    sys.exit(main())
