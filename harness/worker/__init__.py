"""The child side of a trial: runs the target, tells how far it is, plants the fault, says how it ended."""
