"""The run directory is the database: append-only, one function per path."""
