"""The mean of every compression block: phi of Eq. 7 without weights."""
