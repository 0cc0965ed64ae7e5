"""Errors that nsa raises; each says what happened, where, and what to do next."""

from __future__ import annotations


class NsaError(Exception):
    """Base of every error that nsa raises on purpose."""


class ConfigError(NsaError, ValueError):
    """A configuration that cannot be run: unknown key, wrong type, or values that do not fit together."""


class KernelUnavailable(NsaError, RuntimeError):
    """The kernel asked for by policy ``exact`` cannot run here; the message says why."""


class NonFiniteLoss(NsaError, ArithmeticError):
    """The loss became NaN or infinite; the message names step and value."""


class RankLost(NsaError, RuntimeError):
    """Another rank of this run did not come to a common decision; the message names it where it is known."""


class DataFailed(NsaError, RuntimeError):
    """A rank could not read its data: the loader stalls, a shard is empty or broken; the message names the rank."""
