"""Which kernel runs each operator: decided for the place where its tensors lie, with a reason.

A model decides when it is built, and again when its tensors come somewhere else (``nsa.kernels.on_call``). A kernel
that fails is never replaced by another. Under policy ``exact`` a named kernel that cannot run here raises
``KernelUnavailable``; under ``auto`` it is replaced and the reason is recorded. The choice ``auto`` takes the
first kernel of the operator's preference list that accepts the site.

To add a backend: write ``nsa/kernels/<op>/<backend>.py`` with a function that keeps the contract of ``op.py``
and, beside it where needed, ``refuses(site) -> str | None`` (why it cannot run there), ``bind(call, site)`` (the
function with build-time settings fixed) and ``yields(site) -> str | None`` (why ``auto`` should pass it over there,
though it could run); add one line to ``KERNELS`` and its place to ``PREFERENCE``.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nsa.config import suggestion
from nsa.errors import ConfigError, KernelUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from nsa.blocks import BlockLayout
    from nsa.config import KernelConfig

KERNELS: dict[str, dict[str, str]] = {
    "compressed": {
        "masked": "nsa.kernels.compressed.masked:compressed",
        "packed": "nsa.kernels.compressed.packed:compressed",
        "cudnn": "nsa.kernels.compressed.cudnn:compressed",
        "tiles": "nsa.kernels.compressed.tiles:compressed",
        "hopper": "nsa.kernels.compressed.hopper:compressed",
        "flash-attn": "nsa.kernels.compressed.flash_attn:compressed",
    },
    "scores": {
        "torch": "nsa.kernels.scores.torch:select",
        "triton": "nsa.kernels.scores.triton:select_blocks",
        "hopper": "nsa.kernels.scores.hopper:select",
    },
    "selected": {
        "masked": "nsa.kernels.selected.masked:selected",
        "sdpa": "nsa.kernels.selected.sdpa:selected",
        "gather": "nsa.kernels.selected.gather:selected",
        "packed": "nsa.kernels.selected.packed:selected",
        "triton": "nsa.kernels.selected.triton:selected_attention",
        "tiles": "nsa.kernels.selected.tiles:selected",
        "hopper": "nsa.kernels.selected.hopper:selected",
    },
    "window": {
        "masked": "nsa.kernels.window.masked:window",
        "sdpa": "nsa.kernels.window.sdpa:window",
        "flex": "nsa.kernels.window.flex:window",
        "flash": "nsa.kernels.window.flash:window",
        "tiles": "nsa.kernels.window.tiles:window",
        "hopper": "nsa.kernels.window.hopper:window",
        "flash-attn": "nsa.kernels.window.flash_attn:window",
    },
    "combine": {
        "torch": "nsa.kernels.combine.torch:combine",
        "triton": "nsa.kernels.combine.triton:combine",
        "fused": "nsa.kernels.combine.fused:combine",
    },
}
"""Operator, backend name, and where its function lives (loaded on use)."""

PREFERENCE: dict[str, dict[str, tuple[str, ...]]] = {
    "cpu": {
        "compressed": ("packed", "masked"),
        "scores": ("torch",),
        "selected": ("sdpa", "gather", "masked"),
        "window": ("sdpa", "masked"),
        "combine": ("torch",),
    },
    "cuda": {
        "compressed": ("hopper", "tiles", "packed", "masked"),
        "scores": ("hopper", "triton", "torch"),
        "selected": ("hopper", "tiles", "triton", "gather"),
        "window": ("hopper", "tiles", "flash", "sdpa", "masked"),
        "combine": ("fused", "triton", "torch"),
    },
}
"""What ``auto`` tries, best first, per device type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where and on what an operator will run; everything a backend needs to say yes or why not."""

    device: torch.device
    dtype: torch.dtype
    seq_len: int
    n_heads: int
    n_kv_groups: int
    d_k: int
    d_v: int
    layout: BlockLayout
    sdpa: str = "any"

    @property
    def group(self) -> int:
        """Query heads per key/value head."""
        return self.n_heads // self.n_kv_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The kernel chosen for one operator, and why.

    Attributes:
        op: a key of ``KERNELS``.
        kernel: the backend's name.
        reason: why this one.
        call: its function.
        site: where it was chosen for.
        choice: what was asked for, a backend's name or ``auto``.
        policy: how it was asked for.
    """

    op: str
    kernel: str
    reason: str
    call: Callable[..., Any]
    site: Site
    choice: str = "auto"
    policy: str = "exact"

    def elsewhere(self, site: Site) -> Resolution:
        """The same question asked of another site; raises what ``resolve`` raises."""
        return resolve(self.op, choice=self.choice, policy=self.policy, site=site)

    def row(self) -> dict[str, str]:
        """The plain row that probes receive."""
        return {"op": self.op, "kernel": self.kernel, "reason": self.reason}


def resolve(op: str, *, choice: str, policy: str, site: Site) -> Resolution:
    """Pick the kernel for one operator.

    Args:
        op: a key of ``KERNELS``.
        choice: a backend's name, or ``auto``.
        policy: ``exact`` or ``auto``; see the module's first lines.
        site: where it will run.

    Raises:
        ConfigError: no backend has that name.
        KernelUnavailable: the named kernel refuses the site under ``exact``, or every kernel refuses it.
    """
    known = KERNELS[op]
    if choice not in known and choice != "auto":
        raise ConfigError(f"kernels.{op} = {choice!r} is unknown; {suggestion(choice, ['auto', *known])}")
    refusals: list[str] = []
    if choice != "auto":
        refusal = refusal_of(op, choice, site)
        if refusal is None:
            return _resolution(op, choice, "asked for", site, choice, policy)
        if policy == "exact":
            raise KernelUnavailable(
                f"kernels.{op} = {choice!r} cannot run here: {refusal}. "
                "Choose another kernel, or kernels.policy = 'auto' to have it replaced"
            )
        refusals.append(f"{choice} was asked for but {refusal}")
    device = "cpu" if site.device.type == "meta" else site.device.type  # shapes alone: what the CPU's kernels give
    if device not in PREFERENCE:
        raise KernelUnavailable(f"no kernel for {op} runs on {site.device}; move the tensors to a CPU or a CUDA device")
    for name in PREFERENCE[device][op]:
        if name == choice:
            continue
        refusal = refusal_of(op, name, site) or _asked(op, name, "yields", site)
        if refusal is None:
            reason = "; ".join(refusals) or "first choice"
            return _resolution(op, name, f"{reason} on {site.device.type}", site, choice, policy)
        refusals.append(f"{name}: {refusal}")
    raise KernelUnavailable(f"no kernel for {op} can run on {site.device}: " + "; ".join(refusals))


def resolve_all(config: KernelConfig, site: Site) -> dict[str, Resolution]:
    """Pick a kernel for every operator of the sparse attention."""
    return {op: resolve(op, choice=getattr(config, op), policy=config.policy, site=site) for op in KERNELS}


def refusal_of(op: str, name: str, site: Site) -> str | None:
    """Why this backend cannot run at this site, or None if it can."""
    if name == "triton" and site.device.type != "cuda":
        return f"Triton compiles for a GPU, and this is a {site.device.type}"
    try:
        return _asked(op, name, "refuses", site)
    except ImportError as error:
        return f"it cannot be imported ({error})"


def _asked(op: str, name: str, question: str, site: Site) -> str | None:
    """What a backend says to ``refuses`` or ``yields``, if it has an opinion."""
    module = importlib.import_module(KERNELS[op][name].partition(":")[0])
    ask = getattr(module, question, None)
    return ask(site) if ask is not None else None


def load(op: str, name: str) -> Callable[..., Any]:
    """The function behind a backend's name."""
    module, _, attribute = KERNELS[op][name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def _resolution(op: str, name: str, reason: str, site: Site, choice: str, policy: str) -> Resolution:
    module = importlib.import_module(KERNELS[op][name].partition(":")[0])
    call, bind = load(op, name), getattr(module, "bind", None)
    call = call if bind is None else bind(call, site)
    return Resolution(op=op, kernel=name, reason=reason, call=call, site=site, choice=choice, policy=policy)
