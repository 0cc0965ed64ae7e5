"""Run -> Markdown, JSON, terminal text."""
