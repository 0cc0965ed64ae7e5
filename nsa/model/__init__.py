"""Decoders with pluggable attention."""
