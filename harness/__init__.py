"""nsa-harness: tells hung from slow from crashed, with evidence."""

__version__ = "0.1.0"
