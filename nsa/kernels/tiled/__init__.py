"""Attention over tiles of (token, head) rows, for the branches whose mask follows from positions."""
