"""What a stranger's Python runs before its own program: this folder goes on PYTHONPATH. Standard library only.

It works in any interpreter from 3.8 on and imports nothing of ours. What it and its readers must agree on stands in it.
"""
