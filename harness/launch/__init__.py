"""Command -> running process tree, and proof that it is gone."""
