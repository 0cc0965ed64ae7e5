"""Contract suites for plug-ins, ``executors`` and ``engines``, and clusters on this machine to hold engines on."""
