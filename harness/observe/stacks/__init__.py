"""Ways to see the stacks of a process."""
