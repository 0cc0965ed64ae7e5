"""Faults in the harness's own processes: what must hold afterwards, held against a search and its resumption."""
