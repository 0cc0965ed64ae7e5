"""What the pytest sessions that tests start do without: the plugins of hypothesis and anyio, half of a start."""

LEAN = ("-pno:hypothesispytest", "-pno:anyio")
LEAN_ENVIRON = {"PYTEST_ADDOPTS": " ".join(LEAN)}
"""The same for a session and all that it starts."""
