"""How often the kernel ended a process of a control group because its memory limit was reached."""

from __future__ import annotations

from pathlib import Path


class OomKills:
    """Counts from now on, over the memory control group that ``pid`` is in; 0 where there is none to read."""

    def __init__(self, pid: int, *, root: Path = Path("/")) -> None:
        self._file: Path | None = None
        for file in _files(pid, root=root):
            if _oom_kills(file) is not None:
                self._file = file
                break
        self._before = self._now()

    def since_start(self) -> int:
        """Kills in the whole group since this counter was made."""
        return self._now() - self._before

    def _now(self) -> int:
        return 0 if self._file is None else _oom_kills(self._file) or 0


def _files(pid: int, *, root: Path) -> list[Path]:
    """The files that may hold the count: version 1 first, which shows in the list only when it is in use."""
    groups = root / "sys/fs/cgroup"
    files: list[Path] = []
    try:
        lines = (root / f"proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            files.append(groups / "memory" / path.lstrip("/") / "memory.oom_control")
        elif number == "0":
            files.append(groups / path.lstrip("/") / "memory.events")
    return files


def _oom_kills(file: Path) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        if words[0] == "oom_kill":
            return int(words[1])
    return None
