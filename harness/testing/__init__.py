"""Contract suites for plug-ins (``executors``, ``engines``), clusters to hold them on, faults in our own processes."""
