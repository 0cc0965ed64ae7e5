"""Importance of selection blocks and the top-n choice (Eq. 8 to 11)."""
