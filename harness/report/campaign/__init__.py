"""What the trials of many cells say together."""
