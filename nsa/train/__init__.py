"""The training loop: named phases, each announced to probes."""
