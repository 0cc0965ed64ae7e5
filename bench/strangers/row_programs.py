"""The programs of ``rows.py``: those that the instrument once failed on, and two ranks that train by DDP.

The ranks train on a CPU with gloo, or each on a GPU of its own with NCCL where ``STRANGER_GPUS`` says that there are
two: nine faults, one rank that evaluates while the other waits, and two ranks that have long been in one collective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

STEPS = """
import os, subprocess, sys, threading, time
def steps(n, seconds=0.05):
    for i in range(n):
        time.sleep(seconds)
        print("step", i, flush=True)
def now():
    open("in-trouble", "w").close()
"""

OTHERS_LOCK = """
import fcntl
code = "import fcntl, time, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('x', flush=True); time.sleep(30)"
other = subprocess.Popen(["setsid", "env", "-i", sys.executable, "-c", code, "lock"], stdout=subprocess.PIPE)
other.stdout.readline()
"""

RANKS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for i in range(5):
    dist.all_reduce(torch.ones(4))
    print("step", i, flush=True)
def refill(n=0):
    now()
    while n >= 0:
        n = n
if dist.get_rank() == 1:
    refill()
dist.all_reduce(torch.ones(4))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One program: its text, what is true of it, further options, how it is started."""

    name: str
    text: str
    truth: Literal["hangs", "crashes", "healthy"]
    options: tuple[str, ...] = ()
    launcher: Literal["python", "unshare", "torchrun", "bash"] = "python"
    within_s: float = 20.0
    """A hang is told so soon after it began."""
    may_be_open: bool = False
    """Whether ``watch`` may leave it open: what only the process itself can say is not seen from outside."""
    gloo_ends_it: bool = False
    """Whether gloo notices it, and ends the program by an error."""
    stop: bool = False
    """Whether the rank that comes into trouble is stopped from outside, as a scheduler does."""
    gpus: bool = False
    """Whether it needs them."""

    @property
    def ranked(self) -> bool:
        """Whether it begins as two ranks that train do, and says itself when it is in trouble."""
        return self.text.startswith(DDP)


LOCK = "lock = threading.Lock(); lock.acquire(); lock.acquire()"
ROWS = (
    Row(name="child-deadlock", truth="hangs", text=f"""
steps(10); now()
child = os.fork()
if child == 0:
    {LOCK}
os.waitpid(child, 0)
"""),
    Row(name="second-interpreter", truth="hangs", text=f"""
steps(10); now()
subprocess.run([sys.executable, "-c", "import threading; {LOCK}"])
"""),
    Row(name="c-keeps-the-lock", truth="hangs", text="""
import ctypes
steps(10); now()
ctypes.PyDLL(None).pause()
"""),
    Row(name="rank-in-a-busy-loop", truth="hangs", text=RANKS,
        launcher="torchrun"),
    Row(name="loop-at-a-scripts-own-level", truth="hangs", may_be_open=True, text="""
steps(10); now()
n = 0
while n >= 0:
    n = n
"""),
    Row(name="lock-before-the-first-word", truth="hangs", text=f"now()\n{LOCK}"),
    Row(name="steps-of-three-seconds", truth="healthy", options=("--limit", "40s"), text="now(); steps(20, 3.0)"),
    Row(name="one-long-evaluation", truth="healthy", options=("--stall", "6s"), text="""
steps(20); now()
t = time.time(); hits = 0
while time.time() - t < 28:
    hits += sum(i * i for i in range(1000))
steps(5)
"""),
    Row(name="lock-of-another-program", truth="healthy", options=("--stall", "10s"), text=OTHERS_LOCK + """
steps(20); now()
fcntl.flock(open("lock", "w"), 2)
steps(5); other.wait()
"""),
    Row(name="worker-waits-for-such-a-lock", truth="healthy", text=OTHERS_LOCK + """
import torch.utils.data
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        if i == 24:
            now(); fcntl.flock(open("lock", "w"), 2)
        return float(i)
if __name__ == "__main__":
    for x in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=1):
        print(x.sum().item(), flush=True)
    other.wait()
"""),
    Row(name="in-a-pid-namespace", truth="healthy", launcher="unshare", text="""
steps(20); now(); time.sleep(25); steps(5)
"""),
)  # fmt: skip

DDP = """
import os, sys, threading, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
cuda = os.environ.get("STRANGER_GPUS", "0") != "0"
if cuda:
    torch.cuda.set_device(local_rank)
device = torch.device("cuda" if cuda else "cpu")
dist.init_process_group("nccl" if cuda else "gloo")
net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)).to(device)
model = DistributedDataParallel(net, device_ids=[local_rank] if cuda else None)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def now():
    with open("in-trouble.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("in-trouble.new", "in-trouble")
def train_step(step):
    x = torch.randn(32, 256, device=device)
    loss = (model(x) - x).pow(2).mean()
    loss.backward()
    value = loss.item()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print("step", step, value, flush=True)
def first_steps():
    for step in range(10):
        train_step(step)
        time.sleep(0.05)
def last_steps():
    for step in range(10, 20):
        train_step(step)
    dist.destroy_process_group()
    print("done", flush=True)
"""

RANKED = (
    Row(name="other-collective", truth="hangs", launcher="torchrun", text=DDP + """
def share_gradients():
    gradients = torch.ones(1 << 22, device=device)
    dist.all_reduce(gradients)
    print(gradients.sum().item())
def share_scores():
    score = torch.ones(1, device=device)
    scores = [torch.empty_like(score) for _ in range(2)]
    dist.all_gather(scores, score)
    print(scores[0].item())
first_steps()
if rank == 1:
    now()
    share_scores()
else:
    share_gradients()
last_steps()
"""),
    Row(name="rank-left", truth="hangs", launcher="torchrun", gloo_ends_it=True, text=DDP + """
def main():
    first_steps()
    if rank == 1:
        now()
        return
    last_steps()
main()
"""),
    Row(name="rank-stopped", truth="hangs", launcher="torchrun", stop=True, text=DDP + """
first_steps()
if rank == 1:
    now()
    time.sleep(3)
last_steps()
"""),
    Row(name="waits-for-an-event", truth="hangs", launcher="torchrun", text=DDP + """
def wait_for_data():
    now()
    threading.Event().wait()
first_steps()
if rank == 1:
    wait_for_data()
last_steps()
"""),
    Row(name="rank-spins", truth="hangs", launcher="torchrun", text=DDP + """
def refill(n=0):
    now()
    while n >= 0:
        n = n
first_steps()
if rank == 1:
    refill()
last_steps()
"""),
    Row(name="two-groups-in-opposite-order", truth="hangs", launcher="torchrun", text=DDP + """
def reduce_in(group):
    t = torch.ones(8, device=device)
    dist.all_reduce(t, group=group)
    return t.sum().item()
tensors, experts = dist.new_group(), dist.new_group()
reduce_in(tensors)
reduce_in(experts)
first_steps()
if rank == 1:
    now()
    reduce_in(experts)
    reduce_in(tensors)
else:
    reduce_in(tensors)
    reduce_in(experts)
last_steps()
"""),
    Row(name="recv-without-send", truth="hangs", launcher="torchrun", text=DDP + """
def receive():
    t = torch.empty(1 << 16, device=device)
    dist.recv(t, src=0)
    return t.sum().item()
first_steps()
if rank == 1:
    now()
    receive()
last_steps()
"""),
    Row(name="kernel-without-end", truth="hangs", launcher="torchrun", gpus=True, text=DDP + """
first_steps()
if rank == 1:
    now()
    torch.cuda._sleep(1 << 60)
last_steps()
"""),
    Row(name="python-error", truth="crashes", launcher="bash", gloo_ends_it=True, text=DDP + """
first_steps()
if rank == 1:
    now()
    raise ValueError("no such column: 'label'")
last_steps()
"""),
    Row(name="both-in-all-reduce", truth="hangs", launcher="torchrun", gloo_ends_it=True, text=DDP + """
def reduce(elements):
    t = torch.ones(elements, device=device)
    dist.all_reduce(t)
    return t.sum().item()
first_steps()
if rank == 1:
    now()
reduce(1 << 24 if rank == 1 else 1)
last_steps()
"""),
    Row(name="rank-0-evaluates", truth="healthy", launcher="torchrun", text=DDP + """
def evaluate():
    right, began = 0.0, time.time()
    with torch.no_grad():
        while time.time() - began < 30:
            right += net(torch.randn(64, 256, device=device)).argmax(-1).eq(0).float().mean().item()
    print("evaluated", right, flush=True)
first_steps()
if rank == 0:
    now()
    evaluate()
last_steps()
"""),
)  # fmt: skip
