"""Handle -> Outcome and Evidence."""
