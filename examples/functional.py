"""The attention as a function: two documents of 700 and 324 tokens packed in one row, 8 query heads, 2 key heads."""

import torch

from nsa import nsa_attention

device = "cuda" if torch.cuda.is_available() else "cpu"
q = torch.randn(1, 1024, 8, 64, device=device, requires_grad=True)
k, v = (torch.randn(1, 1024, 2, 64, device=device, requires_grad=True) for _ in range(2))
gates = torch.rand(1, 1024, 8, 3, device=device)  # of the compressed, selected and window branch
documents = [0, 700, 1024]
o = nsa_attention(q, k, v, None, None, gates, w=128, n=8, cu_seqlens=documents)  # None: means of blocks
o.square().mean().backward()
print(tuple(o.shape), "gradient of q:", round(q.grad.norm().item(), 5))
