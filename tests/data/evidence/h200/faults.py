import os, sys, time, torch, torch.distributed as dist, torch.nn as nn
kind=sys.argv[1]
r=int(os.environ['RANK']); torch.cuda.set_device(r); dev=f'cuda:{r}'
dist.init_process_group('nccl', device_id=torch.device(dev))
print('up',r,os.getpid(),flush=True)
m=nn.Sequential(*[nn.Linear(512,512) for _ in range(6)]).to(dev)
def step(): 
    x=torch.randn(32,512,device=dev); l=m(x).sum(); l.backward(); return l
for s in range(3):
    l=step(); dist.all_reduce(m[0].weight.grad); torch.cuda.synchronize(); print('step',s,r,flush=True)
if kind=='skip_collective':
    if r==0: dist.all_reduce(torch.ones(1000,device=dev))
    else: time.sleep(0)
    x=torch.ones(77,device=dev); dist.broadcast(x,0) if r==1 else None
    print('sum',x.sum().item(),flush=True); torch.cuda.synchronize()
elif kind=='spin_kernel':
    import triton, triton.language as tl
    @triton.jit
    def k(p):
        v=tl.atomic_add(p,0)
        while v==0: v=tl.atomic_add(p,0)
    f=torch.zeros(1,dtype=torch.int32,device=dev)
    if r==0: k[(1,)](f)
    dist.all_reduce(torch.ones(10,device=dev)); torch.cuda.synchronize()
elif kind=='ddp_unused':
    class M(nn.Module):
        def __init__(s): super().__init__(); s.a=nn.Linear(512,512); s.b=nn.Linear(512,512)
        def forward(s,x,u): 
            y=s.a(x); return y+s.b(x) if u else y
    d=nn.parallel.DistributedDataParallel(M().to(dev),device_ids=[r])
    for s in range(5):
        l=d(torch.randn(8,512,device=dev), r==0 or s<2).sum(); l.backward(); torch.cuda.synchronize(); print('ddp',s,r,flush=True)
elif kind=='straggler':
    if r==1: time.sleep(300)
    dist.all_reduce(torch.ones(10,device=dev)); torch.cuda.synchronize()
elif kind=='backward_lock':
    import threading; L=threading.Lock(); L.acquire()
    class F(torch.autograd.Function):
        @staticmethod
        def forward(c,x): return x*2
        @staticmethod
        def backward(c,g): L.acquire(); return g
    if r==1: l=F.apply(m(torch.randn(4,512,device=dev))).sum(); l.backward()
    dist.all_reduce(torch.ones(10,device=dev)); torch.cuda.synchronize()
elif kind=='sigstop':
    import signal
    if r==1: os.kill(os.getpid(),signal.SIGSTOP)
    dist.all_reduce(torch.ones(10,device=dev)); torch.cuda.synchronize()
print('done',r,flush=True)
