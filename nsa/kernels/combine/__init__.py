"""The gated sum of the branches (Eq. 5)."""
