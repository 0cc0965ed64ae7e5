"""GPUs by NVML: what the driver counts, per device and per process, without touching CUDA or the trial."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.devices import GpuActivity, GpuProcess, GpuSample
from harness.core.evidence import SourceFailure
from harness.core.ports import DeviceSample
from harness.observe.devices.activity import Activity
from harness.observe.within import within_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.core.ports import WatchedJob

LIMIT_S = 3.0
"""How long the driver may take; a GPU that has fallen off the bus answers never. Measured on two H200: 0.02 s."""

DRIVER = (Path("/dev/nvidiactl"), Path("/proc/driver/nvidia/version"))
INSTALL = "install it with: pip install nvidia-ml-py"


class Nvml:
    """Samples every GPU on which the trial has a process, or all of them while it has none anywhere.

    Asked at every look: what moves between samples is the evidence. On a machine without an NVIDIA driver it sees
    nothing and does not complain.
    """

    name = "nvml"
    repeated = True

    def __init__(
        self, *, library: Any = None, limit_s: float = LIMIT_S, proc: Path = Path("/proc"), driver: bool | None = None
    ) -> None:
        self._library: Any = library
        self._limit_s, self._proc = limit_s, proc
        self._has_driver = any(path.exists() for path in DRIVER) if driver is None else driver
        self._handles: list[Any] = []
        self._activities: dict[int, Activity | None] = {}
        self._events: Any = None
        self._xids: dict[int, list[int]] = {}
        self._why = ""
        self._why_no_xids = ""

    def see(self, job: WatchedJob) -> DeviceSample:
        """The GPUs now."""
        if not self._has_driver:
            return DeviceSample()
        if not self._why:
            try:
                samples = within_limit(lambda: self._samples(job), limit_s=self._limit_s)
            except TimeoutError:
                self._why = f"the driver did not answer within {self._limit_s:g} s and was not asked again"
            except ImportError:
                self._why = f"nvidia-ml-py is not installed; {INSTALL}"
            except Exception as error:  # noqa: BLE001 - the library's errors are made at run time, one class per code
                self._why = f"NVML: {error or type(error).__name__}"
            else:
                return DeviceSample(gpus=samples, failures=self._failures(self._why_no_xids))
        return DeviceSample(failures=self._failures(self._why))

    def uuids(self) -> tuple[str, ...]:
        """The UUID of every GPU, by number; empty where no driver tells."""
        if not self._has_driver or self._why:
            return ()
        try:
            return within_limit(self._uuids, limit_s=self._limit_s)
        except Exception:  # noqa: BLE001 - the library's errors are made at run time, one class per code
            return ()

    def _uuids(self) -> tuple[str, ...]:
        if not self._handles:
            self._open()
        return tuple(self._text(self._library.nvmlDeviceGetUUID, handle) for handle in self._handles)

    def close(self) -> None:
        """Give the library's descriptors back; a driver that does not answer keeps them."""
        if not self._handles or self._why:
            return
        try:
            within_limit(self._shut, limit_s=self._limit_s)
        except TimeoutError:
            self._why = "the driver did not answer at the end"
        self._handles = []

    def _shut(self) -> None:
        nvml = self._library
        for activity in filter(None, self._activities.values()):
            self._ask(activity.close)
        if self._events is not None:
            self._ask(nvml.nvmlEventSetFree, self._events)
        self._ask(nvml.nvmlShutdown)

    def _failures(self, reason: str) -> tuple[SourceFailure, ...]:
        return (SourceFailure(id="", source=self.name, reason=reason),) if reason else ()

    def _open(self) -> None:
        """Load the library once, and ask to be told of Xids from now on."""
        if self._library is None:
            self._library = import_module("pynvml")
        nvml = self._library
        nvml.nvmlInit()
        self._handles = list(map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount())))
        try:
            self._events = nvml.nvmlEventSetCreate()
            for handle in self._handles:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
        except nvml.NVMLError as error:
            self._events, self._why_no_xids = None, f"Xids are not told here: {error}"

    def _samples(self, job: WatchedJob) -> tuple[GpuSample, ...]:
        if not self._handles:
            self._open()
        self._collect_xids()
        samples = tuple(self._sample(index, job) for index in range(len(self._handles)))
        return tuple(filter(_is_used, samples)) or samples

    def _sample(self, index: int, job: WatchedJob) -> GpuSample:
        nvml, handle = self._library, self._handles[index]
        used = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        power = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        limit = self._ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        name = self._text(nvml.nvmlDeviceGetName, handle)
        return GpuSample(
            id="",
            t_s=job.t_s,
            index=index,
            name=name,
            utilisation=None if used is None else int(used.gpu),
            memory_utilisation=None if used is None else int(used.memory),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            power_w=None if power is None else power / 1000,
            power_limit_w=None if limit is None else limit / 1000,
            sm_clock_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            activity=self._activity(index, job.t_s),
            processes=self._processes(handle, job),
            xids=tuple(self._xids.get(index, ())),
        )

    def _activity(self, index: int, now_s: float) -> GpuActivity | None:
        """What the units of a card did since the last look; who does not count them is asked once."""
        try:
            if index not in self._activities:
                self._activities[index] = Activity(self._library, self._handles[index])
            activity = self._activities[index]
            return None if activity is None else activity.until(now_s)
        except (AttributeError, self._library.NVMLError):
            self._activities[index] = None
            return None

    def _processes(self, handle: Any, job: WatchedJob) -> tuple[GpuProcess, ...]:
        nvml = self._library
        rows = self._ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
        busy = {s.pid: int(s.smUtil) for s in self._ask(nvml.nvmlDeviceGetProcessUtilization, handle, 0) or ()}
        processes: list[GpuProcess] = []
        for row in rows:
            ours, percent = self._is_ours(row.pid, job), busy.get(row.pid)
            process = GpuProcess(pid=row.pid, ours=ours, memory_bytes=row.usedGpuMemory, sm_percent=percent)
            processes.append(process)
        return tuple(processes)

    def _is_ours(self, pid: int, job: WatchedJob) -> bool | None:
        if pid in job.pids:
            return True
        return False if (self._proc / str(pid)).exists() else None

    def _collect_xids(self) -> None:
        """Take the driver's fault events that have come since the last look."""
        nvml = self._library
        while self._events is not None:
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
            except nvml.NVMLError:  # its way to say that there is none
                return
            self._xids.setdefault(self._number(event.device), []).append(int(event.eventData))

    def _number(self, device: Any) -> int:
        """The place of a GPU among those that are sampled; 0 where it is not among them."""
        nvml = self._library
        for place, handle in enumerate(self._handles):
            if self._ask(nvml.nvmlDeviceGetIndex, handle) == self._ask(nvml.nvmlDeviceGetIndex, device):
                return place
        return 0

    def _text(self, question: Callable[..., Any], handle: Any) -> str:
        """The answer to a question for a text; empty where there is none."""
        text = self._ask(question, handle) or ""
        return text.decode() if isinstance(text, bytes) else text

    def _ask(self, question: Callable[..., Any], *args: Any) -> Any:
        """The answer, or None where this driver or card does not tell."""
        try:
            return question(*args)
        except self._library.NVMLError:
            return None


def _is_used(sample: GpuSample) -> bool:
    """Whether the trial has a process on this GPU."""
    return any(process.ours for process in sample.processes)
