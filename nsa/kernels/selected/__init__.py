"""Attention over the selected blocks (Eq. 12)."""
