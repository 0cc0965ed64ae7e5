"""One folder per operator: its contract, its reference, its backends; and the registry that picks one."""
