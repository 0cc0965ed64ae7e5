"""A matplotlib that cannot be imported."""

raise ImportError("no figure is drawn in this test")
