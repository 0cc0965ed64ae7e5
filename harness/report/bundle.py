"""Bundle: a report to be passed on, with the evidence beside it that every number and sentence is computed from.

A bundle is a folder: ``report.md``, ``report.html``, ``figures/``, ``findings.json`` (the answer and the counts behind
it), and ``evidence.tar.xz``, the run's journal and the evidence of its trials without names, secrets and places of the
machine. The pages are made from what the archive holds and from nothing else, so that anybody can make them again
(:mod:`harness.report.verify`); ``classify``, ``replay``, ``log`` and ``fsck`` take a bundle as they take a run.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from harness.core.codec import SCHEMA
from harness.core.errors import DamagedError, NotOursError
from harness.report.apart import here
from harness.report.figures import draw
from harness.report.findings import Findings
from harness.report.hide import Hider
from harness.report.render import html, markdown
from harness.report.render import json as json_form
from harness.report.sections import earlier
from harness.report.text import size
from harness.report.write import build
from harness.store import journal, layout
from harness.store.archive import packed, unpacked
from harness.store.cases import without_places
from harness.store.files import checksum, outside_of_runs, read_text, write_atomic
from harness.store.history import History
from harness.store.run_store import read_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LARGEST_BYTES = 300_000
"""What a whole bundle should have at most, so that many can stand in a repository."""

BESIDE = ("notes.md", "repro.py", "repro.json", "commits.json")
"""Files of a run that its report shows, and that its bundle holds as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBundle:
    """What was written: how many bytes in all, and whose evidence is not in it."""

    folder: Path
    size_bytes: int
    trials: int
    left_out: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """``reports/x: 214 KiB, with the evidence of 26 of 26 trials``."""
        with_evidence = self.trials - len(self.left_out)
        text = f"{self.folder}: {size(self.size_bytes)}, with the evidence of {with_evidence} of {self.trials} trials"
        much = f"; that is more than {size(LARGEST_BYTES)}" if self.size_bytes > LARGEST_BYTES else ""
        return text + much


def is_bundle(folder: Path) -> bool:
    """Whether ``folder`` is a report with its evidence beside it."""
    return layout.archive(folder).is_file()


def bundle(run_dir: Path, folder: Path, *, hider: Hider) -> WrittenBundle:
    """Write the report of the run in ``run_dir`` into ``folder``, with its evidence; see the module.

    Args:
        run_dir: a run, or the unpacked evidence of a bundle.
        folder: where it goes; made if need be. Files of an earlier bundle there are replaced, and no others.
        hider: takes names and secrets out of everything that is written.

    Raises:
        NotOursError: the folder holds something and is no bundle, or a file of the bundle would replace another one.
        StoreError: the run cannot be read, or the bundle cannot be written.
    """
    before = _bundle_before(folder)
    archive = packed({name: text.encode() for name, text in _evidence(run_dir, hider).items()})
    with TemporaryDirectory(prefix="nsa-harness-") as elsewhere:
        staged = Path(elsewhere) / (folder.name or "bundle")
        staged.mkdir()
        layout.archive(staged).write_bytes(archive)
        evidence = unpacked(staged)
    texts = pages(evidence)
    _replace_nothing_else(folder, texts, before=before)
    with outside_of_runs(folder):
        folder.mkdir(parents=True, exist_ok=True)
        temporary = _half_written(folder)
        temporary.write_bytes(archive)
        temporary.replace(layout.archive(folder))
        return _written(folder, evidence, texts)


def write_pages(folder: Path) -> WrittenBundle:
    """Write the pages of the bundle in ``folder`` again from its evidence.

    Raises:
        NotOursError: a file of the bundle would replace another one.
        StoreError: its evidence cannot be read, or the pages cannot be written.
    """
    evidence = unpacked(folder)
    texts = pages(evidence)
    _replace_nothing_else(folder, texts, before=evidence)
    with outside_of_runs(folder):
        return _written(folder, evidence, texts)


def _half_written(folder: Path) -> Path:
    """Where the archive of the bundle in ``folder`` is written before it takes its place."""
    return folder / f".{layout.archive(folder).name}.tmp"


def _bundle_before(folder: Path) -> Path | None:
    """The evidence of the bundle that is in ``folder`` already; None where the folder is empty, or not there.

    Raises:
        NotOursError: something else is in it.
    """
    if not folder.is_dir() or set(folder.iterdir()) <= {_half_written(folder)}:
        return None
    if is_bundle(folder):
        with suppress(DamagedError):
            evidence = unpacked(folder)
            if layout.bundle_manifest(evidence).is_file():
                return evidence
    raise NotOursError(f"{folder} is not empty and holds no bundle of nsa-harness: nothing was written there.")


def _replace_nothing_else(folder: Path, texts: Iterable[str], *, before: Path | None) -> None:
    """Refuse to write files over such as are not of the bundle whose evidence is ``before``.

    Raises:
        NotOursError: there is one.
    """
    for name in texts:
        if (folder / name).exists() and not _is_of_the_bundle(folder / name, name, before):
            raise NotOursError(f"{folder / name} is not of the bundle in {folder}: nothing was written there.")


def _is_of_the_bundle(path: Path, name: str, before: Path | None) -> bool:
    """Whether a file was written with the bundle whose evidence is ``before``, and not put beside it."""
    if path.suffix == ".svg":
        return draw.is_ours(path)
    return before is not None and (name not in BESIDE or (before / name).is_file())


def _written(folder: Path, evidence: Path, texts: Mapping[str, str]) -> WrittenBundle:
    """Put the pages into ``folder``; a figure of an earlier bundle that is not among them goes."""
    for old in layout.figures(folder).glob("*.svg"):
        if f"{layout.figures(folder).name}/{old.name}" not in texts and draw.is_ours(old):
            old.unlink()
    size_bytes = layout.archive(folder).stat().st_size
    for name, text in texts.items():
        write_atomic(folder / name, text)
        size_bytes += (folder / name).stat().st_size
    return WrittenBundle(
        folder=folder,
        size_bytes=size_bytes,
        trials=len(read_run(evidence).records),
        left_out=tuple(json.loads(read_text(layout.bundle_manifest(evidence)))["left_out"]),
    )


def pages(run_dir: Path) -> dict[str, str]:
    """Every file of a bundle but the archive, by its name, computed from the unpacked evidence in ``run_dir``.

    Nothing of the machine goes into them, neither its names nor where the bundle lies.
    """
    run = replace(read_run(run_dir), directory="")  # it cannot be continued here
    hider = Hider()
    report = build(run, run_dir, draw=here, hide=hider.text)
    folder = layout.figures(run_dir).name
    texts = {
        layout.report(run_dir).name: markdown.render(report, hide=hider.text, figures=folder),
        layout.report(run_dir, "html").name: html.render(report, hide=hider.text),
        layout.findings(run_dir).name: json_form.findings_of(report),
    }
    for figure in report.figures:
        texts[f"{folder}/{figure.name}.svg"] = figure.file
    for name in BESIDE[:2]:
        if (run_dir / name).is_file():
            texts[name] = read_text(run_dir / name)
    return texts


def _evidence(run_dir: Path, hider: Hider) -> dict[str, str]:
    """What the archive holds, by relative path: question, machine, journal, evidence, and what people put beside."""
    history = History.read(run_dir)
    files: dict[str, str] = {}
    for path in (layout.spec(run_dir), layout.machine(run_dir)):
        files[path.name] = _clean(json.loads(read_text(path)), hider, indent=1)
    left_out: list[str] = []
    proofs: dict[str, str] = {}
    for record in (*history.records(), *history.reused()):
        key = record.trial.key
        evidence_file = layout.evidence(history.trial_dir(key))
        if not evidence_file.is_file():
            left_out.append(key)
            continue
        text = _clean(json.loads(read_text(evidence_file)), hider)
        files[str(layout.evidence(layout.trial(run_dir, key)).relative_to(run_dir))] = text
        proofs[key] = checksum(text)
    files[layout.journal(run_dir).name] = _journal(run_dir, history, hider, files=files, proofs=proofs)
    for name in BESIDE:
        if (run_dir / name).is_file():
            files[name] = without_places(hider.text(read_text(run_dir / name)))
    compared = earlier.related(Findings(run=read_run(run_dir), run_dir=run_dir))
    files[layout.earlier(run_dir).name] = _clean(compared, hider, indent=1)
    before = layout.bundle_manifest(run_dir)
    why = json.loads(read_text(before)).get("why", "") if before.is_file() else ""
    files[before.name] = json.dumps({"schema": 1, "left_out": left_out, "why": why}, indent=1) + "\n"
    return files


def _journal(run_dir: Path, history: History, hider: Hider, *, files: dict[str, str], proofs: dict[str, str]) -> str:
    """The journal, sealed again: without the start of trials that ended, which says nothing that their record lacks."""
    lines, torn = journal.read(layout.journal(run_dir))
    ended = {record.trial.key for record in (*history.records(), *history.undone())}
    events = [(line.event, line.wall, line.data) for line in lines]
    if torn is not None:
        events.append(("note", events[-1][1] if events else history.identity.started_at, {"text": str(torn)}))
    text = b""
    for event, wall, data in events:
        if event == "start" and data["trial"]["key"] in ended:
            continue
        payload = json.loads(_clean(data, hider))
        if event == "header":
            payload.pop("pid", None)
            checked = set(payload.get("files", ()))
            payload["files"] = {name: checksum(content) for name, content in files.items() if name in checked}
        if event in ("record", "reuse"):
            payload.pop("evidence", None)
            proof = proofs.get(payload["record"]["trial"]["key"])
            payload |= {"evidence": proof} if proof else {}
        row = {"event": event, "schema": SCHEMA, "wall": wall, "data": payload}
        text += journal.sealed(row, number=text.count(b"\n") + 1, before=None if text else b"")
    return text.decode()


def _clean(data: Any, hider: Hider, *, indent: int | None = None) -> str:
    """``data`` as JSON without names, secrets and the places where this machine has its programs."""
    text = without_places(json.dumps(hider.data(data), indent=indent, separators=None if indent else (",", ":")))
    return text if indent is None else f"{text}\n"
