"""Evidence -> Verdict; pure."""
