"""Report -> bytes."""
