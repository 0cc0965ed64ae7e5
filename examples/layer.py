"""The layer in a model of one's own: built on the CPU, moved, trained one step, and decoded token by token."""

import torch

from nsa import NSAAttention

device = "cuda" if torch.cuda.is_available() else "cpu"
attention = NSAAttention(256, n_heads=8, n_kv_groups=2, w=128, n=8).to(device)
x = torch.randn(2, 600, 256, device=device)
optimizer = torch.optim.AdamW(attention.parameters())
(attention(x) - x).square().mean().backward()
optimizer.step()
with torch.no_grad():
    cache = attention.new_cache()
    steps = torch.cat([attention(piece, cache=cache) for piece in (x[:, :599], x[:, 599:])], dim=1)
    print(tuple(steps.shape), "decoded equals whole:", torch.allclose(steps, attention(x), atol=1e-4))
