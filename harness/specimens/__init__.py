"""Programs with a known fault."""
