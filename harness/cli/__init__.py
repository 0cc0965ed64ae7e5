"""The command line: one module a command, imported when chosen."""
