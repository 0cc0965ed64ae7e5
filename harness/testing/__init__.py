"""Fakes and contract suites: what a test, ours or a plug-in's, may import."""
