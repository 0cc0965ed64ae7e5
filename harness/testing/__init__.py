"""Contract suites for plug-ins (``executors``, ``engines``), clusters to hold them on, and faults in our own processes."""
