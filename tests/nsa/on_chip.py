"""What a compiled kernel takes of a multiprocessor, and what there is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import triton

SMEM_BYTES = {80: 163 << 10, 90: 227 << 10}
CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


def stack_bytes(binary, tmp_path):
    """Bytes per thread that did not fit in registers."""
    file = tmp_path / "kernel.cubin"
    file.write_bytes(binary.asm["cubin"])
    report = subprocess.run([CUOBJDUMP, "-res-usage", file], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"STACK:(\d+)", report).group(1))
