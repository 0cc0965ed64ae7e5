"""Programs as people write them, each in an idiom of its own; none of them imports this project.

A host calls ``trouble(phase, step)`` where something may be put: nothing, a fault or a healthy pause. Everything else
is what such programs look like: plain loops, DDP, FSDP2, loaders, a pipeline, a rollout server in a child process. They
train on a CPU, with gloo, unless ``STRANGER_GPUS`` says that there are GPUs: then a rank has one, with NCCL.
"""

from __future__ import annotations

from dataclasses import dataclass

STEPS = 12

PRELUDE = """
import os, sys, time, threading
RANK = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
WORLD = int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0")))
HERE = os.path.dirname(os.path.abspath(__file__))
def stamp(what):
    with open(os.environ["STRANGER_STAMPS"], "a") as file:
        file.write(f"{what} {time.time()} {RANK}\\n")
def trouble(phase, step, rank=None):
    if (phase, step) == (@PHASE@, @STEP@) and (RANK if rank is None else rank) in @RANKS@:
        stamp("begins")
        strike()
        stamp("is over")
@STRIKE@
"""

TORCH = """
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
cuda = os.environ.get("STRANGER_GPUS", "0") != "0"
device = torch.device("cuda" if cuda else "cpu")
def net():
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).to(device)
def batch():
    return torch.randn(16, 64, device=device)
"""

JOIN = """
import torch.distributed as dist
if cuda:
    torch.cuda.set_device(LOCAL_RANK)
backend = "nccl" if cuda else "gloo"
dist.init_process_group(backend, rank=RANK, world_size=WORLD)
"""

JOIN_WITH_DEVICE = JOIN.replace(
    "world_size=WORLD)", 'world_size=WORLD, device_id=torch.device("cuda", LOCAL_RANK) if cuda else None)'
)

LEAVE = """
dist.destroy_process_group()
print("done", flush=True)
"""

PLAIN = (
    TORCH
    + """
model = net()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(@STEPS@):
    trouble("data", step)
    x = batch()
    trouble("forward", step)
    loss = (model(x) - x).pow(2).mean()
    loss.backward()
    trouble("backward", step)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
    trouble("end", step)
"""
)

SILENT = PLAIN.replace('    print(f"step {step} loss {loss.item():.4f}", flush=True)\n', "")

NO_TORCH = """
import random
def simulate(state):
    return sum(random.random() * s for s in state)
state = list(range(20000))
for step in range(@STEPS@):
    trouble("data", step)
    trouble("forward", step)
    total = simulate(state)
    trouble("backward", step)
    print("iteration", step, total, flush=True)
    time.sleep(0.05)
    trouble("end", step)
"""

IN_BACKWARD = (
    TORCH
    + """
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
now = 0
def on_gradient(grad):
    trouble("backward", now)
    return grad
next(model.parameters()).register_hook(on_gradient)
for now in range(@STEPS@):
    trouble("data", now)
    loss = model(batch()).pow(2).mean()
    trouble("forward", now)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(now, float(loss), flush=True)
    trouble("end", now)
"""
)

LOADER = (
    TORCH
    + """
class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 16 * @STEPS@
    def __getitem__(self, index):
        if index % 16 == 0:
            trouble("data", index // 16)
        return torch.randn(64)
if __name__ == "__main__":
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(Texts(), batch_size=16, num_workers=2)
    for step, x in enumerate(loader):
        x = x.to(device)
        trouble("forward", step)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        trouble("backward", step)
        optimizer.step()
        print(f"{step}: {loss.item():.3f}", flush=True)
        trouble("end", step)
"""
)

SAVES = (
    TORCH
    + """
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def evaluate(step):
    model.eval()
    with torch.no_grad():
        for _ in range(5):
            model(batch())
    trouble("end", step)
    model.train()
for step in range(@STEPS@):
    trouble("data", step)
    loss = model(batch()).pow(2).mean()
    trouble("forward", step)
    loss.backward()
    trouble("backward", step)
    optimizer.step(); optimizer.zero_grad()
    if step % 3 == 2:
        evaluate(step)
        torch.save(model.state_dict(), os.path.join(HERE, f"checkpoint{step}.pt"))
        print(f"saved at {step}", flush=True)
    else:
        trouble("end", step)
"""
)

ROLLOUT = (
    TORCH
    + """
import multiprocessing
def serve(wants, gives):
    rng = torch.Generator().manual_seed(1)
    while (n := wants.recv()) is not None:
        trouble("data", n)
        gives.send(torch.randn(16, 64, generator=rng).tolist())
if __name__ == "__main__":
    wants, asked = multiprocessing.Pipe(False)
    got, gives = multiprocessing.Pipe(False)
    child = multiprocessing.Process(target=serve, args=(wants, gives))
    child.start()
    wants.close(); gives.close()
    policy = net()
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    for step in range(@STEPS@):
        asked.send(step)
        x = torch.tensor(got.recv(), device=device)
        trouble("forward", step)
        loss = policy(x).pow(2).mean()
        loss.backward()
        trouble("backward", step)
        optimizer.step(); optimizer.zero_grad()
        print("episode", step, flush=True)
        trouble("end", step)
    asked.send(None)
    child.join()
"""
)

DDP = (
    TORCH
    + JOIN
    + """
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(net(), device_ids=[LOCAL_RANK] if cuda else None)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(@STEPS@):
    trouble("data", step)
    x = batch()
    loss = (model(x) - x).pow(2).mean()
    trouble("forward", step)
    loss.backward()
    value = loss.item()
    trouble("backward", step)
    optimizer.step(); optimizer.zero_grad()
    if RANK == 0:
        print(f"step {step} loss {value:.4f}", flush=True)
    trouble("end", step)
"""
    + LEAVE
)

NO_SYNC = (
    TORCH
    + JOIN
    + """
import contextlib
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(net(), device_ids=[LOCAL_RANK] if cuda else None)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(@STEPS@):
    for micro in range(3):
        if micro == 1:
            trouble("data", step)
        with contextlib.nullcontext() if micro == 2 else model.no_sync():
            loss = model(batch()).pow(2).mean() / 3
            if micro == 1:
                trouble("forward", step)
            loss.backward()
    trouble("backward", step)
    optimizer.step(); optimizer.zero_grad()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if RANK == 0:
        print(step, float(total), flush=True)
    trouble("end", step)
"""
    + LEAVE
)

BY_HAND = (
    TORCH
    + JOIN_WITH_DEVICE
    + """
model = net()
for p in model.parameters():
    dist.broadcast(p.data, 0)
for step in range(@STEPS@):
    trouble("data", step)
    loss = model(batch()).pow(2).mean()
    trouble("forward", step)
    loss.backward()
    trouble("backward", step)
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.data -= 0.1 * p.grad / WORLD
        p.grad = None
    if step % 4 == 3:
        dist.barrier()
    print(f"[{RANK}] {step} {loss.item():.4f}", flush=True)
    trouble("end", step)
"""
    + LEAVE
)

FSDP = (
    TORCH
    + JOIN_WITH_DEVICE
    + """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh(device.type, (WORLD,))
model = net()
for layer in model:
    if isinstance(layer, torch.nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(@STEPS@):
    trouble("data", step)
    loss = model(batch()).pow(2).mean()
    trouble("forward", step)
    loss.backward()
    trouble("backward", step)
    optimizer.step(); optimizer.zero_grad()
    if RANK == 0:
        print("step", step, loss.item(), flush=True)
    trouble("end", step)
"""
    + LEAVE
)

TENSOR_PARALLEL = (
    TORCH
    + JOIN
    + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh(device.type, (WORLD,))
model = parallelize_module(net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(@STEPS@):
    trouble("data", step)
    loss = model(batch()).pow(2).mean()
    trouble("forward", step)
    loss.backward()
    trouble("backward", step)
    optimizer.step(); optimizer.zero_grad()
    print(RANK, step, loss.item(), flush=True)
    trouble("end", step)
"""
    + LEAVE
)

PIPELINE = (
    TORCH
    + JOIN
    + """
stage = net()
optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
for step in range(@STEPS@):
    trouble("data", step)
    if RANK == 0:
        out = stage(batch())
        trouble("forward", step)
        dist.send(out.detach(), 1)
        grad = torch.empty(16, 64, device=device)
        dist.recv(grad, 1)
        out.backward(grad)
    else:
        x = torch.empty(16, 64, device=device)
        dist.recv(x, 0)
        x.requires_grad_()
        trouble("forward", step)
        loss = stage(x).pow(2).mean()
        loss.backward()
        dist.send(x.grad, 0)
    trouble("backward", step)
    optimizer.step(); optimizer.zero_grad()
    if RANK == WORLD - 1:
        print("microbatch", step, loss.item(), flush=True)
    trouble("end", step)
"""
    + LEAVE
)

SPAWNED = (
    TORCH
    + """
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
def work(rank, port):
    global RANK
    RANK = rank
    if cuda:
        torch.cuda.set_device(rank)
    backend = "nccl" if cuda else "gloo"
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    model = DistributedDataParallel(net(), device_ids=[rank] if cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(@STEPS@):
        trouble("data", step, rank)
        loss = model(batch()).pow(2).mean()
        trouble("forward", step, rank)
        loss.backward()
        trouble("backward", step, rank)
        optimizer.step(); optimizer.zero_grad()
        if rank == 0:
            print("step", step, loss.item(), flush=True)
        trouble("end", step, rank)
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(work, args=(int(os.environ["MASTER_PORT"]),), nprocs=2)
"""
)

ACCELERATED = (
    TORCH
    + """
from accelerate import Accelerator
accelerator = Accelerator(cpu=not cuda, gradient_accumulation_steps=2)
import torch.distributed as dist
model = net()
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
for step in range(@STEPS@):
    trouble("data", step)
    for micro in range(2):
        with accelerator.accumulate(model):
            loss = model(batch()).pow(2).mean()
            if micro == 0:
                trouble("forward", step)
            accelerator.backward(loss)
            optimizer.step(); optimizer.zero_grad()
    trouble("backward", step)
    losses = accelerator.gather(loss.detach())
    accelerator.print("step", step, losses.mean().item(), flush=True)
    trouble("end", step)
accelerator.end_training()
"""
)

COMPILED = PLAIN.replace("model = net()", "model = torch.compile(net())")

LIGHTNING = (
    TORCH
    + """
import logging, warnings
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net()
    def training_step(self, x, step):
        trouble("forward", step)
        return (self.net(x) - x).pow(2).mean()
    def on_after_backward(self):
        trouble("backward", self.global_step)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
    def on_train_batch_start(self, x, step):
        trouble("data", step)
    def on_train_batch_end(self, out, x, step):
        print("step", step, flush=True)
        trouble("end", step)
rows = torch.utils.data.DataLoader([torch.randn(64) for _ in range(16 * @STEPS@)], batch_size=16)
trainer = lightning.Trainer(max_epochs=1, accelerator="gpu" if cuda else "cpu", devices=1, logger=False,
                            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Module(), rows)
"""
)

TRANSFORMERS = (
    TORCH
    + """
import warnings
warnings.filterwarnings("ignore")
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                     num_attention_heads=2, max_position_embeddings=64))
rows = [{"input_ids": torch.randint(0, 64, (16,)), "labels": torch.randint(0, 64, (16,))} for _ in range(4 * @STEPS@)]
class Say(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        trouble("data", state.global_step)
        trouble("forward", state.global_step)
    def on_step_end(self, args, state, control, **kwargs):
        trouble("backward", state.global_step - 1)
        print("step", state.global_step, flush=True)
        trouble("end", state.global_step - 1)
arguments = TrainingArguments(output_dir=os.path.join(HERE, "out"), per_device_train_batch_size=4, max_steps=@STEPS@,
                              report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
                              use_cpu=not cuda)
Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[Say()]).train()
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A program: ``text`` is its source, ``launchers`` how it may be started, ``needs`` packages that it imports.

    ``ranks`` is how many processes train. ``worker`` says that its data comes from another process, ``on_gpu`` that it
    can train on a GPU as one process; every program of several ranks can train on as many GPUs.
    """

    name: str
    text: str
    launchers: tuple[str, ...] = ("python", "bash", "own")
    ranks: int = 1
    needs: tuple[str, ...] = ()
    worker: bool = False
    on_gpu: bool = False


RANKED = ("torchrun", "srun", "bash-ranks", "own")

HOSTS = {
    host.name: host
    for host in (
        Host(name="plain", text=PLAIN, on_gpu=True),
        Host(name="silent", text=SILENT, on_gpu=True),
        Host(name="no-torch", text=NO_TORCH),
        Host(name="hooks", text=IN_BACKWARD, on_gpu=True),
        Host(name="loader", text=LOADER, worker=True, on_gpu=True),
        Host(name="saves", text=SAVES, on_gpu=True),
        Host(name="rollout", text=ROLLOUT, worker=True, on_gpu=True),
        Host(name="compiled", text=COMPILED, on_gpu=True),
        Host(name="lightning", text=LIGHTNING, needs=("lightning",), on_gpu=True),
        Host(
            name="transformers",
            text=TRANSFORMERS,
            needs=("transformers", "accelerate"),
            launchers=("python", "bash", "accelerate"),
            on_gpu=True,
        ),
        Host(name="ddp", text=DDP, launchers=RANKED, ranks=2),
        Host(name="no-sync", text=NO_SYNC, launchers=RANKED, ranks=2),
        Host(name="by-hand", text=BY_HAND, launchers=RANKED, ranks=2),
        Host(name="fsdp", text=FSDP, launchers=RANKED, ranks=2),
        Host(name="tensor-parallel", text=TENSOR_PARALLEL, launchers=RANKED, ranks=2),
        Host(name="pipeline", text=PIPELINE, launchers=RANKED, ranks=2),
        Host(name="spawned", text=SPAWNED, launchers=("python",), ranks=2),
        Host(name="accelerated", text=ACCELERATED, launchers=("accelerate",), ranks=2, needs=("accelerate",)),
    )
}
