"""DEVICE_SOURCES: ways to see what GPUs and communicators do, cheap ones first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.observe.devices.devices import Devices
from harness.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Sequence

DEVICE_SOURCES = Registry(
    "device source",
    {
        "nvml": "harness.observe.devices.nvml:Nvml",
        "flight-recorder": "harness.observe.devices.recorder:FlightRecorder",
        "nccl-ras": "harness.observe.devices.ras:NcclRas",
    },
    group="nsa_harness.device_sources",
)


def load_devices(names: Sequence[str] = ()) -> Devices:
    """The sources called ``names``, or all of them, ready to watch one trial.

    Raises:
        UnknownNameError: a name that is not in the table.
    """
    return Devices(tuple(DEVICE_SOURCES.load(name)() for name in (names or DEVICE_SOURCES.names())))
