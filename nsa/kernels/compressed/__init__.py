"""Attention over compressed blocks (Eq. 7): every query sees the blocks that are complete."""
