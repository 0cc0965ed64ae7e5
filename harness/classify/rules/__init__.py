"""One rule a file; the order stands in the engine."""
