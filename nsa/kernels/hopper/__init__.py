"""Attention for Hopper GPUs in Gluon: some warps load by TMA while others compute by wgmma."""
