"""torch's flight recorder, as pickle or JSON -> CollectiveState. The same for NCCL and gloo, torch 2.11 to 2.13."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from harness.core.devices import Collective, CollectiveState
from harness.observe.devices.plain_pickle import MAX_BYTES, load_plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_OPERATIONS = 200
"""Operations that are kept of each rank, the last ones: enough to see the divergence and what came before it."""

_TORCH_FILE = re.compile(r"(^|/)torch/|<frozen|(^|/)lib/python3\.\d+/(?!site-packages)")


def parse_recorder(data: bytes, *, t_s: float, rank: int, source: str) -> CollectiveState:
    """What one rank's recorder held.

    Raises:
        ValueError: it is neither, or not what a recorder writes.
    """
    record = _json(data) if data.lstrip()[:1] == b"{" else load_plain(data)
    try:
        rows = record.get("entries", [])[-MOST_OPERATIONS:]
        entries: list[Collective] = []
        backends: set[str] = set()
        for row in rows:
            entries.append(_collective(row))
            backend, colon, _ = str(row["profiling_name"]).partition(":")
            if colon:
                backends.add(backend)
        if rows and _is_being_handed_over(rows[-1], entries[-1], record.get("pg_status") or {}):
            entries[-1] = replace(entries[-1], state="scheduled", done=False)
        groups = _groups(record.get("pg_config"), entries)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"it is no flight record: {error!r}") from error
    return CollectiveState(
        id="",
        t_s=t_s,
        rank=rank,
        source=source,
        backend="/".join(sorted(backends)),
        collectives=tuple(entries),
        groups=groups,
    )


def _json(data: bytes) -> Any:
    if len(data) > MAX_BYTES:
        raise ValueError(f"{len(data)} bytes are more than the {MAX_BYTES} that are read")
    return json.loads(data)


def _collective(entry: Mapping[str, Any]) -> Collective:
    backend, colon, op = str(entry["profiling_name"]).partition(":")
    is_p2p = bool(entry.get("is_p2p"))
    group = entry.get("process_group") or ("", "")
    done = bool(entry.get("retired")) or entry.get("state") == "completed"
    return Collective(
        group=str(group[0]),
        seq=int(entry["p2p_seq_id"] if is_p2p else entry["collective_seq_id"]),
        op=op if colon else backend,
        sizes=tuple(tuple(map(int, size)) for size in entry.get("input_sizes") or ()),
        dtypes=tuple(map(str, entry.get("input_dtypes") or ())),
        state=str(entry.get("state") or ""),
        done=done,
        p2p=is_p2p,
        where=_where(entry.get("frames") or ()),
    )


def _is_being_handed_over(entry: Mapping[str, Any], last: Collective, status: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the call of the last operation has not returned, as while NCCL connects a new group's ranks in it.

    Such an operation reads "completed": it is asked by events that nobody has recorded yet, and those look done. But
    the ``status`` of its group counts it only after the call.
    """
    if entry.get("state") != "completed" or entry.get("retired", True) or last.p2p:
        return False
    counted = status.get(str(entry.get("pg_id")), {}).get("last_enqueued_collective", last.seq)
    return int(counted) < last.seq


def _where(frames: Sequence[Mapping[str, Any]]) -> str:
    """The program's own line, ``trainer.py:120``: the innermost frame outside torch and the standard library."""
    for frame in frames:
        if not _TORCH_FILE.search(str(frame["filename"])):
            return f"{PurePosixPath(str(frame['filename'])).name}:{int(frame['line'])}"
    return ""


def _groups(
    config: Mapping[str, Mapping[str, Any] | None] | None, entries: Sequence[Collective]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The ranks of each group; gloo's records name a lone group by an empty text, whatever its entries call it."""
    if not isinstance(config, dict):
        return ()
    members = {str(name): _ranks(row) for name, row in config.items() if isinstance(row, dict)}
    names = {op.group for op in entries}
    if set(members) == {""} and len(names) == 1:
        members = {next(iter(names)): members[""]}
    return tuple(sorted((name, ranks) for name, ranks in members.items() if ranks))


def _ranks(row: Mapping[str, Any]) -> tuple[int, ...]:
    """``"[0, 1]"`` -> (0, 1)."""
    return tuple(map(int, re.findall(r"\d+", str(row.get("ranks", "")))))
