"""A sequence model whose attention goes token by token in Python: slow, and not hung. Imports nothing of ours.

python bench/strangers/token_loop.py --layers 12 --tokens 2048 --steps 1 --device cuda
"""

import argparse
import math
import time

import torch


class Attention(torch.nn.Module):
    """Causal attention, one query after the other."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x):
        """(batch, tokens, width) to the same."""
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, -1).unbind(2)
        rows = []
        for t in range(tokens):
            heads = []
            for h in range(self.heads):
                scores = (k[:, : t + 1, h] @ q[:, t, h].unsqueeze(-1)).squeeze(-1) / math.sqrt(width // self.heads)
                heads.append((scores.softmax(-1).unsqueeze(1) @ v[:, : t + 1, h]).squeeze(1))
            rows.append(torch.cat(heads, -1))
        return self.out(torch.stack(rows, 1))


class Block(torch.nn.Module):
    """Attention and a feed-forward network."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm = torch.nn.LayerNorm(width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x):
        """(batch, tokens, width) to the same."""
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


def main():
    """Train for some steps, and say how long each took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(256, asked.width),
        *(Block(asked.width, asked.heads) for _ in range(asked.layers)),
        torch.nn.Linear(asked.width, 256),
    ).to(asked.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(asked.steps):
        began_s = time.monotonic()
        x = torch.randint(256, (2, asked.tokens), device=asked.device)
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
        print(f"step {step}: forward in {time.monotonic() - began_s:.1f} s", flush=True)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.3f} in {time.monotonic() - began_s:.1f} s", flush=True)


if __name__ == "__main__":
    main()
