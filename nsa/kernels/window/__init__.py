"""Attention over the last w keys."""
