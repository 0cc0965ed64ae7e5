"""Rotary embedding: every head turned by its row's angle."""
