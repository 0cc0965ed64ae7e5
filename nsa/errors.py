"""Errors that nsa raises; each says what happened, where, and what to do next."""

from __future__ import annotations


class NsaError(Exception):
    """Base of every error that nsa raises on purpose."""


class ConfigError(NsaError, ValueError):
    """A configuration that cannot be run: unknown key, wrong type, or values that do not fit together."""


class DataUnavailable(ConfigError):
    """Data that cannot even be opened here: a package, a file or the network is missing; the message says which."""


class InputError(NsaError, ValueError):
    """Tensors that do not fit together, or not to the model; the message gives the shapes and what would fit."""


class DerivativeError(NsaError, NotImplementedError):
    """A second derivative that no kernel computes; the message names the operator."""


class KernelUnavailable(NsaError, RuntimeError):
    """The kernel asked for by policy ``exact`` cannot run here; the message says why."""


class NonFiniteLoss(NsaError, ArithmeticError):
    """The loss became NaN or infinite; the message names step and value."""


class RankLost(NsaError, RuntimeError):
    """Another rank of this run did not come to a common decision; the message names it where it is known."""


class DataFailed(NsaError, RuntimeError):
    """A rank could not read its data: the loader stalls, a shard is empty or broken; the message names the rank."""
