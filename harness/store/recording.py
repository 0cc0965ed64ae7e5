"""What a trial's processes must be started with so that torch's flight recorder can be read while they hang."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.store import layout

if TYPE_CHECKING:
    from pathlib import Path

ENTRIES = 2000
"""Operations that the recorder keeps (its own default where it is on): a few hundred bytes each."""


def recorder_environment(trial_dir: Path) -> dict[str, str]:
    """Variables with which every rank's recorder writes to the trial's folder when asked through its pipe.

    No time-out of torch's own is needed for that. With timing the recorder also tells an operation that has begun on
    its device from one that waits there behind another kernel. torch 2.11 keeps no record
    unless told; from 2.13 on it does.
    """
    prefix = str(layout.recorder(trial_dir))
    return {
        "TORCH_FR_BUFFER_SIZE": str(ENTRIES),
        "TORCH_FR_DUMP_TEMP_FILE": prefix,
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": prefix,
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_ENABLE_TIMING": "1",
    }
