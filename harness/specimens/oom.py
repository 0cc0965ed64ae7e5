"""oom: asks for memory until there is none, under a limit of its own so that the machine does not notice."""

from __future__ import annotations

from harness.core.verdict import Kind
from harness.specimens.catalog import Scene, Specimen

GIB = 2**30
LIMIT_BYTES = 24 * GIB
"""Address space, not memory: a torch process maps several GiB of libraries and thread arenas that it never touches."""


def allocate_until_refused(scene: Scene) -> None:
    """Reserve untouched tensors of 1 GiB until the allocator refuses.

    Raises:
        RuntimeError: the allocator's own message; AssertionError when no limit is in force.
    """
    import torch

    kept = [torch.empty(GIB, dtype=torch.uint8) for _ in range(LIMIT_BYTES // GIB)]
    raise AssertionError(f"reserved {len(kept)} GiB: the address space limit of this trial is not in force")


SPECIMEN = Specimen(
    name="oom",
    strike=allocate_until_refused,
    expect=Kind.OOM,
    max_address_space_bytes=LIMIT_BYTES,
    expect_frame="allocate_until_refused",
    imitates="activations that do not fit",
)
