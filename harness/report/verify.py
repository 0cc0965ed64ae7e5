"""Verify: computes every number and sentence of a report again from its evidence, and names what is not the same.

Four things are done, each by itself: the archive is held against the checksums in it; every trial that has its evidence
is judged again; the counts, the rate that the passes rule out and the line through the times are worked out from the
journal's bare JSON, by nothing that makes the pages; and the pages are made again and compared, sentence by sentence.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from difflib import SequenceMatcher
from html.parser import HTMLParser
from itertools import zip_longest
from statistics import linear_regression
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.core.errors import DamagedArchiveError, NoRunError
from harness.core.fit import medians
from harness.core.point import assignment
from harness.core.trial import control_of
from harness.core.verdict import Case
from harness.report.bundle import is_bundle, pages
from harness.report.findings import object_at
from harness.report.render.json import drawn_with
from harness.store import fsck, journal, layout
from harness.store.archive import unpacked
from harness.store.files import read_text
from harness.store.history import read_evidence
from harness.store.run_store import read_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from harness.core.verdict import Verdict

    Point = tuple[float, float]
    """A value and what it cost."""
    Slope = Callable[[Sequence[Point]], float | None]


_SENTENCE = re.compile(r"(?<=[.!?;])\s+(?=\S)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A sentence that the evidence does not give: where it stands, what it says, and what it should say.

    ``text`` is empty for a sentence that is missing there, ``computed`` for one that nothing gives. ``is_of_the_file``
    is where ``text`` says what is wrong with the whole file at ``place``, of which no sentence was compared.
    """

    place: str
    text: str
    computed: str
    is_of_the_file: bool = False

    def __str__(self) -> str:
        if self.is_of_the_file:
            return f"{self.place}: {_short(self.text)}"
        if not self.text:
            return f"{self.place}: it lacks: {_short(self.computed)}"
        if not self.computed:
            return f"{self.place}: nothing in its evidence gives: {_short(self.text)}"
        return f"{self.place}: it says: {_short(self.text)}\n    the evidence gives: {_short(self.computed)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was compared of one bundle, and what is not the same; ``unjudged`` trials came without evidence.

    It ``is_damaged`` where the evidence itself is not as it was written, so that no page can be made from it.
    """

    folder: Path
    differences: tuple[Difference, ...]
    sentences: int = 0
    numbers: int = 0
    judged: int = 0
    unjudged: int = 0
    is_damaged: bool = False

    @property
    def sentence(self) -> str:
        """``reports/x: 412 sentences with 2,310 numbers, 26 verdicts: all as the evidence gives them``."""
        if self.is_damaged:
            return f"{self.folder}: its evidence is not as it was written, so nothing was computed from it"
        what = f"{self.sentences} sentences with {self.numbers} numbers, {self.judged} verdicts"
        end = f"{len(self.differences)} not as the evidence gives them" if self.differences else "all the same again"
        lacking = f" ({self.unjudged} trials came without evidence)" if self.unjudged else ""
        return f"{self.folder}: {what}: {end}{lacking}"


def bundles(path: Path) -> list[Path]:
    """The bundles at or below ``path``.

    Raises:
        NoRunError: there is none.
    """
    folders = [path] if is_bundle(path) else sorted(a.parent for a in path.rglob(layout.archive(path).name))
    if not folders:
        lack = "no report with its evidence beside it. Make one with: nsa-harness report --bundle DIR"
        raise NoRunError(f"{path}: {lack}")
    return folders


def verify(folder: Path, *, judge: Callable[[Case], Verdict], slope: Slope) -> Verified:
    """Compute the bundle in ``folder`` again and compare.

    ``judge`` gives the verdict on a trial's evidence, ``slope`` that of the line through points (value, cost).

    Raises:
        StoreError: the evidence cannot be read at all.
    """
    try:
        run_dir = unpacked(folder)
    except DamagedArchiveError as error:
        return _damaged(folder, [str(error).replace(f"{layout.archive(folder).resolve()}: ", "")])
    if problems := fsck.problems(run_dir):
        return _damaged(folder, [text.replace(f"{run_dir}/", "") for text in problems])
    judged, differences = _verdicts(run_dir, judge)
    sentences = numbers = 0
    expected = pages(run_dir)
    for name, text in expected.items():
        units = _units(name, text)
        sentences += len(units)
        for unit in units:
            numbers += len(_NUMBER.findall(unit.text))
        differences += _of_page(name, text, folder)
    for path in sorted(layout.figures(folder).glob("*")):
        figure = f"{layout.figures(folder).name}/{path.name}"
        if figure not in expected:
            differences.append(Difference(place=figure, text="a figure", computed=""))
    differences += _recomputed(run_dir, folder, slope)
    unjudged, differing = len(read_run(run_dir).records) - judged, tuple(differences)
    return Verified(
        folder=folder, sentences=sentences, numbers=numbers, judged=judged, unjudged=unjudged, differences=differing
    )


def _damaged(folder: Path, problems: Iterable[str]) -> Verified:
    """A bundle with nothing computed from its evidence, because that is not as it was written."""
    archive = layout.archive(folder).name
    differences = tuple(Difference(place=archive, text=text, computed="", is_of_the_file=True) for text in problems)
    return Verified(folder=folder, differences=differences, is_damaged=True)


def _verdicts(run_dir: Path, judge: Callable[[Case], Verdict]) -> tuple[int, list[Difference]]:
    """How many trials were judged again, and those that get another verdict."""
    judged, differences = 0, list[Difference]()
    for number, record in enumerate(read_run(run_dir).records, start=1):
        evidence = read_evidence(run_dir, record.trial.key)
        if evidence is None:
            continue
        now = judge(Case(trial=record.trial, outcome=record.outcome, evidence=evidence))
        judged += 1
        if not is_same(now, record.verdict):
            place = f"trial {number} of the journal"
            differences.append(Difference(place=place, text=_in_full(record.verdict), computed=_in_full(now)))
    return judged, differences


def _in_full(verdict: Verdict) -> str:
    return f"{verdict} in {verdict.phase or '-'}, rank {verdict.rank}"


def is_same(one: Verdict, other: Verdict) -> bool:
    """Whether two verdicts are the same; the words of their reasons may have become better since."""
    return (one.kind, one.cause, one.rank, one.phase) == (other.kind, other.cause, other.rank, other.phase)


def _of_page(name: str, computed: str, folder: Path) -> list[Difference]:
    """What is not the same in the page ``name`` of the bundle, a page that cannot be read included."""
    try:
        text = read_text(folder / name)
    except FileNotFoundError:
        return [Difference(place=name, text="", computed="the whole file")]
    except UnicodeDecodeError as error:
        why = f"it is not UTF-8 from byte {error.start} on, so nothing in it was compared"
        return [Difference(place=name, text=why, computed="", is_of_the_file=True)]
    except OSError as error:
        why = f"it cannot be read, so nothing in it was compared: {error.strerror}"
        return [Difference(place=name, text=why, computed="", is_of_the_file=True)]
    return [] if text == computed else compared(name, text, computed, folder)


def compared(name: str, text: str, computed: str, folder: Path) -> list[Difference]:
    """Each sentence of ``text`` that is another in ``computed``; else where the files differ outside sentences."""
    ours, theirs = _units(name, text), _units(name, computed)
    matcher = SequenceMatcher(a=[unit.text for unit in ours], b=[unit.text for unit in theirs], autojunk=False)
    differences: list[Difference] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            continue
        for one, other in zip_longest(ours[a:b], theirs[c:d]):
            _, line, section = (one or ours[min(a, len(ours) - 1)]) if ours else ("", 1, "")
            place = f"{name}:{line}{f' ({section})' if section else ''}"
            stated, right = one.text if one else "", other.text if other else ""
            differences.append(Difference(place=place, text=stated, computed=right))
    if not differences and not (name.endswith((".svg", ".html")) and _drawn_elsewhere(folder)):
        pairs = zip_longest(text.split("\n"), computed.split("\n"))
        line, (is_there, is_right) = next((n, pair) for n, pair in enumerate(pairs, start=1) if pair[0] != pair[1])
        place = f"{name}:{line} (layout)"
        differences.append(Difference(place=place, text=is_there or "(nothing)", computed=is_right or ""))
    return differences


def _drawn_elsewhere(folder: Path) -> bool:
    """Whether the figures were drawn by another version of the library: then their words are compared, not lines."""
    try:
        return json.loads(read_text(layout.findings(folder))).get("drawn_with") != drawn_with()
    except (OSError, ValueError, AttributeError):
        return False


class _Unit(NamedTuple):
    """A sentence, a row of a table, a line of a code block, a text of a figure: its words, its line, its section."""

    text: str
    line: int
    section: str


def _units(name: str, text: str) -> list[_Unit]:
    if name.endswith((".html", ".svg")):
        parser = _Words()
        parser.feed(text)
        parser.close()
        return parser.units
    return list(_sentences(text))


def _sentences(text: str) -> Iterator[_Unit]:
    """The sentences of Markdown; rows of tables, and lines of anything else, as they are."""
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            section = line.lstrip("# ")
        parts = [line] if line.startswith(("|", " ", "`", "{", "[")) else _SENTENCE.split(line)
        for part in parts:
            if part.strip():
                yield _Unit(part.strip(), number, section)


class _Words(HTMLParser):
    """The texts of a page, each with its line and the section that it stands in; styles are not words."""

    BREAKS = frozenset({"a", "b", "br", "code", "em", "i", "small", "span", "strong", "sub", "sup", "wbr", "tspan"})
    """Tags that stand inside a sentence."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.units: list[_Unit] = []
        self._text, self._line, self._section, self._style = "", 1, "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag not in self.BREAKS:
            self._flush()
        self._style = tag in ("style", "script")
        self._section = (attributes.get("id") or "") if tag == "section" else self._section
        self._add(map(attributes.get, ("alt", "content", "href", "aria-label")), line=self.getpos()[0])

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.BREAKS:
            self._flush()
        self._style = False

    def handle_data(self, data: str) -> None:
        if self._style or not data.strip():
            self._text += " " if self._text and not self._style else ""
            return
        if not self._text:
            self._line = self.getpos()[0]
        self._text += data

    def close(self) -> None:
        super().close()
        self._flush()

    def _flush(self) -> None:
        self._add(_SENTENCE.split(" ".join(self._text.split())), line=self._line)
        self._text = ""

    def _add(self, texts: Iterable[str | None], *, line: int) -> None:
        for text in texts:
            if text:
                self.units.append(_Unit(text, line, self._section))


def _recomputed(run_dir: Path, folder: Path, slope: Slope) -> list[Difference]:
    """What ``findings.json`` counts, against the journal's JSON, read by nothing that makes reports."""
    lines, _ = journal.read(layout.journal(run_dir))
    events: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        events[line.event].append(line.data)
    records = [data["record"] for data in (*events["record"], *events["reuse"])]  # as a report numbers them
    undone = any(int(data["count"]) > 0 for data in events["undo"])
    end = events["end"][-1] if events["end"] else {}
    findings = object_at(layout.findings(folder))
    if not findings:
        return []  # said already: it is not the file that the evidence gives
    differences: list[Difference] = []
    if not undone:  # which facts an undo takes back is the store's to say
        counts = Counter(record["verdict"]["kind"] for record in records)
        times_s = [round(record["outcome"]["duration_s"], 2) for record in records]
        differences += _same("counts of verdicts", findings.get("counts"), dict(sorted(counts.items())))
        differences += _same("seconds of each trial", [row["seconds"] for row in findings.get("trials", [])], times_s)
    answer: dict[str, Any] = end.get("answer") or {}
    boundary = end.get("boundary") or answer.get("boundary")
    if boundary:
        differences += _rate(boundary, records)
        differences += _line(boundary.get("fit"), slope)
    for item in answer.get("fits") or ():
        differences += _line(item["fit"], slope)
    return differences


def _rate(boundary: dict[str, Any], records: list[dict[str, Any]]) -> list[Difference]:
    """The failure rate that is ruled out must not be smaller than so many passes in a row can rule out."""
    rate, good = boundary.get("excluded_rate"), boundary.get("last_good")
    if not rate or good is None:
        return []
    passes = sum(_has_passed_at(record, boundary["axis"], good) for record in records)
    least = 1 - (1 - boundary["confidence"]) ** (1 / passes) if passes else 1.0
    if rate >= least - 1e-9:
        return []
    claim = f"failure rates of {rate:.4f} and more are ruled out at {assignment(boundary['axis'], good)}"
    return [Difference(place="the answer", text=claim, computed=f"{passes} passes rule out {least:.4f} and more")]


def _has_passed_at(record: dict[str, Any], axis: str, value: object) -> bool:
    """Whether it is a trial at that value, no control, that passed."""
    if dict(record["trial"]["point"]["settings"]).get(axis) != value or control_of(record["trial"]["role"]):
        return False
    return record["verdict"]["kind"] == "PASS"


def _line(fit: dict[str, Any] | None, slope: Slope) -> list[Difference]:
    """The slope of a fit from its own points: by least squares of all, or as a line by values is drawn.

    A line by values went through the medians alone before its points were weighed.
    """
    points = [(float(x), float(y)) for x, y in (fit or {}).get("points") or ()]
    if not fit or (fit.get("exponent") or 1.0) == 0.0 or len(dict(points)) < 2:
        return []
    right = [slope(points), _least_squares(medians(points))] if fit.get("is_by_value") else [_least_squares(points)]
    for one in right:
        if one is not None and abs(one - fit["slope"]) <= 1e-6 * max(abs(one), abs(fit["slope"]), 1e-9):
            return []
    return [Difference(place="the answer", text=f"slope {fit['slope']:.6g}", computed=f"slope {right[0]:.6g}")]


def _least_squares(points: Sequence[Point]) -> float:
    xs, ys = zip(*points, strict=True)
    return linear_regression(xs, ys).slope


def _same(what: str, actual: object, computed: object) -> list[Difference]:
    if actual == computed:
        return []
    return [Difference(place=f"findings.json ({what})", text=json.dumps(actual), computed=json.dumps(computed))]


def _short(text: str, *, most: int = 240) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[:most]} ..."
