"""Flags and YAML -> core.spec."""
