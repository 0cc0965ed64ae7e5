"""Compare: two runs of the same cells, before and after a change. Which verdicts changed, and what else differs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import starmap
from typing import TYPE_CHECKING

from harness.core.campaign import programs_by_cell
from harness.core.cause import CellCount
from harness.core.dotted import leaves
from harness.core.point import assignment
from harness.core.ports import Block
from harness.core.rates import SURE, p_value
from harness.core.verdict import Answer, Kind
from harness.report.findings import Findings
from harness.report.sections.threshold import differences
from harness.report.summary import COMPARISON, first
from harness.report.text import code, count, listed, md, seconds, table
from harness.report.tried import TrialSet, each_verdict, place_on, together
from harness.report.words import NextStep, lasted, program_of
from harness.report.write import Report, build

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.core.point import Value
    from harness.core.record import Run, TrialRecord
    from harness.core.space import Factor
    from harness.core.trial import Trial
    from harness.report.tried import Numbered

Key = tuple[tuple[str, "Value"], ...]

NOT_COMPARED = "Not compared: the program's own files, which a run does not record; they may be the reason."
"""Of a program that is not ours and of which no commit was recorded."""

TRACKED_ALONE = "Of the program's own files, those are compared that git tracks."
"""Of a program whose commit was recorded."""

MORE_OFTEN, LESS_OFTEN = "failing more often", "failing less often"
CHANGES = {
    "broken": "bad",
    "slow now": "bad",
    MORE_OFTEN: "bad",
    "other failure": "unsure",
    "fixed": "good",
    "no longer slow": "good",
    LESS_OFTEN: "good",
    "inconclusive": "unsure",
}
"""What may become of a cell, the most urgent first, and whether that is good."""

UNCHANGED = ("the same", "only after", "only before")

SMALL = 0.01
"""The smallest probability that is given as a number."""

TWICE = 2
"""Trials that a side of a pair needs before its change counts as reproduced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The trials at the same place before and after; ``changed`` are the settings in which they differ.

    ``is_of_recorded_code`` says whether it was recorded for each of them which code ran.
    """

    name: str
    before: TrialSet
    after: TrialSet
    changed: tuple[str, ...] = ()
    is_of_recorded_code: bool = True

    @property
    def change(self) -> str:
        """One of CHANGES or UNCHANGED."""
        if not self.before or not self.after:
            return "only after" if self.after else "only before"
        old, new = _tone(self.before), _tone(self.after)
        if "unsure" in (old, new) or {old, new} == {"slow", "bad"}:
            return "the same" if self._ends_alike else "inconclusive"
        ways = {("good", "slow"): "slow now", ("slow", "good"): "no longer slow",
                ("good", "bad"): "broken", ("bad", "good"): "fixed"}  # fmt: skip
        return ways.get((old, new)) or self._change_of_failure()

    def _change_of_failure(self) -> str:
        """Of two sides that both fail, or both do not: whether it is in the same, and as often."""
        if _failures(self.before) != _failures(self.after):
            return "other failure"
        is_by_luck = self._ends_alike and self.by_chance > 1.0 - SURE
        before, after = (_failed(side) / len(side) for side in (self.before, self.after))
        if before == after or is_by_luck:
            return "the same"
        return MORE_OFTEN if after > before else LESS_OFTEN

    @property
    def _ends_alike(self) -> bool:
        """Whether each ending of one side was there on the other."""
        return set(self.before.words) == set(self.after.words)

    @property
    def is_moved(self) -> bool:
        """Whether it changed, as far as its trials can say."""
        return self.change in CHANGES and self.change != "inconclusive"

    @property
    def is_again(self) -> bool:
        """Whether both sides were run often enough for the change to count as reproduced, and differ beyond luck."""
        return min(len(self.before), len(self.after)) >= TWICE and (self.is_plain or self.by_chance <= 1.0 - SURE)

    @property
    def is_plain(self) -> bool:
        """Whether on each side all trials agree that it fails, or none says so."""
        return all(_failed(side) in (0, len(side)) for side in (self.before, self.after))

    @property
    def by_chance(self) -> float:
        """The probability of such a difference, or a greater one, if nothing has changed."""
        worse, better = sorted((self.before, self.after), key=lambda side: _failed(side) / len(side), reverse=True)
        return p_value([(_counted(worse), _counted(better))])

    @property
    def differing(self) -> str:
        """How much differs, as a clause; a command line is one setting, in which many words may differ."""
        if not self.changed:
            return "nothing that was recorded differs"
        if self.is_one_thing:
            return "only one thing differs"
        several = f"{count(len(self.changed), 'setting')} differ"
        return several if len(self.changed) > 1 else "several parts of the command line differ"

    @property
    def is_one_thing(self) -> bool:
        """Whether both sides differ in one setting: of a command line in one word, or one option with its value."""
        old, new = (Counter(_words(side.records)) for side in (self.before, self.after))
        gone, come = list((old - new).elements()), list((new - old).elements())
        option = [word.startswith("--") for word in gone + come] == [True, False] and not (gone and come)
        return len(self.changed) == 1 and (max(len(gone), len(come)) <= 1 or option)


def compare(before: Run, after: Run, after_dir: Path, *, before_dir: Path | None = None) -> Report:
    """The report of what changed from ``before`` to ``after``; every form renders it.

    ``before_dir`` is where the evidence of ``before`` lies, for those forms that show it.
    """
    cell_pairs = pairs(before, after)
    report = build(after, after_dir)
    moved = [pair for pair in cell_pairs if pair.is_moved]
    changes = Counter(pair.change for pair in cell_pairs)
    claim = _claim(moved)
    unchanged = "nothing to compare" if _has_nothing_in_common(changes) else "nothing changed"
    verdict = listed(f"{changes[change]} {change}" for change in CHANGES if changes[change]) or unchanged
    summary = replace(
        report.summary,
        kind=COMPARISON,
        verdict=verdict[:1].upper() + verdict[1:],
        tone=_tone_of(changes),
        answer=_answer(changes, cell_pairs),
        begins_with_verdict=False,
        claim=claim,
        sure=_sure(moved) or ("Nothing is claimed.",),
        happened=(),
        steps=(*_own_files(moved), *_steps(moved, claim, after)) if moved else _steps_unmoved(changes, report),
        notes=(),
    )
    blocks = (
        ("answer", first(report.findings, summary)),
        ("cells", Block(title="Before and after", markdown=_table(cell_pairs))),
        ("pairs", Block(title="Minimal pairs", markdown=_pairs(cell_pairs))),
        ("fixed", Block(title="What else differs", markdown=_else(before, after))),
        ("runs", Block(title="Runs", markdown=_runs(before, after))),
    )
    return Report(
        findings=report.findings,
        title=f"From {before.id} to {after.id}: what changed?",
        summary=summary,
        blocks=blocks,
        before=build(before, before_dir) if before_dir else None,
    )


def _tone_of(changes: Counter[str]) -> str:
    """Bad where anything became worse, good where something became better and nothing else changed."""
    tones = {tone for change, tone in CHANGES.items() if changes[change]}
    return "bad" if "bad" in tones else "good" if tones == {"good"} else "unsure"


def _has_nothing_in_common(changes: Counter[str]) -> bool:
    return changes.total() == changes["only before"] + changes["only after"]


def _counted(trials: TrialSet) -> CellCount:
    return CellCount(cell=trials.first.cell, good=trials.good, bad=_failed(trials))


def _words(records: Sequence[TrialRecord]) -> list[str]:
    """The command line that the first of some trials ran; empty without one."""
    return str(records[0].trial.config.get("command", "")).split() if records else []


def pairs(before: Run, after: Run) -> tuple[Pair, ...]:
    """Every place that either run tried: along one axis in its order, else in the order of the later run."""
    factors = {factor.name: factor for run in (before, after) for factor in run.spec.matrix.space.factors}
    old, new = _by_place(before, after, factors), _by_place(after, before, factors)
    cell_pairs: list[Pair] = []
    keys = list(dict.fromkeys((*new, *old)))
    if len(factors) == 1:
        axes = {factor.name: factor.axis for factor in after.spec.matrix.space.factors}
        keys.sort(key=lambda key: [place_on(axes[name], value) for name, value in key if name in axes])
    for key in keys:
        one, other = old.get(key, TrialSet()), new.get(key, TrialSet())
        changed = _changed(before, one.first.record, after, other.first.record) if one and other else ()
        name = ", ".join(starmap(assignment, key)) or "the run"
        is_recorded = _is_of_recorded_code(before, one.records) and _is_of_recorded_code(after, other.records)
        cell_pairs.append(Pair(name=name, before=one, after=other, changed=changed, is_of_recorded_code=is_recorded))
    return tuple(cell_pairs)


def _changed(before: Run, one: TrialRecord, after: Run, other: TrialRecord) -> tuple[str, ...]:
    """Every setting in which two trials differ, the commit of the program where that of both was recorded."""
    changed = differences(one.trial, other.trial)
    old, new = _commit_of(before, one), _commit_of(after, other)
    if old and new and old != new:
        changed.append(f"program: {program_of(old)} -> {program_of(new)}")
    return tuple(changed)


def _commit_of(run: Run, record: TrialRecord) -> str:
    """The commit of the program that a trial of ``run`` ran; empty where it was not recorded, and of our trainer."""
    if record.trial.target == "nsa":
        return ""
    programs = programs_by_cell(run.programs)
    return record.trial.commit or programs.get(record.trial.point, run.program)


def _is_of_recorded_code(run: Run, records: Iterable[TrialRecord]) -> bool:
    """Whether it is known which code ran: of our own trainer it is, of another program only at a commit."""
    return all(record.trial.target == "nsa" or _commit_of(run, record) for record in records)


def _by_place(run: Run, other: Run, factors: Mapping[str, Factor]) -> dict[Key, TrialSet]:
    """The trials of ``run`` by all axes of both; runs that share none have no place in common."""
    own, others = run.spec.matrix.space.names, other.spec.matrix.space.names
    lacking = [factors[name] for name in others if name not in own] if set(own) & set(others) else []

    def place(trial: Numbered) -> Key:
        settings = (*trial.cell, *((factor.name, _value_of(factor, trial.record.trial)) for factor in lacking))
        return tuple(sorted(settings, key=lambda setting: setting[0]))

    return together(Findings(run=run).searched, place)


def _value_of(factor: Factor, trial: Trial) -> Value:
    """The value of an axis that the trial's run did not have: by its settings, else the one that is known good."""
    settings = leaves(trial.config)
    for value, bundle in zip(factor.axis.values, factor.bundles, strict=False):
        if bundle.config and all(settings.get(name) == set_to for name, set_to in bundle.config):
            return value
        if bundle.env and set(bundle.env) <= set(trial.env):
            return value
    setting = settings.get(factor.axis.path)
    return setting if setting in factor.axis.values else factor.good


def _tone(trials: TrialSet) -> str:
    if trials.bad:
        return "bad"
    if trials.good == len(trials):
        return "good"
    return "slow" if trials.good + trials.kind_counts[Kind.SLOW] == len(trials) else "unsure"


def _failed(trials: TrialSet) -> int:
    """How many showed the failure that is sought; where none did, how many did not pass."""
    return trials.bad or len(trials) - trials.good


def _failures(trials: TrialSet) -> set[str]:
    """What those that :func:`_failed` counts ended in."""
    failing = [trial for trial in trials if trial.record.answer is Answer.BAD]
    return {trial.word for trial in failing or trials if trial.record.answer is not Answer.GOOD}


def _often(trials: TrialSet, times: str = "{}") -> str:
    """``CRASH (ValueError) 12 of 20, PASS 8 of 20``: each verdict with how often it was reached."""
    each = trials.verdicts
    words = dict.fromkeys(str(trial.verdict) for trial in trials)
    return listed(f"{word} {times.format(f'{each[word]} of {len(trials)}')}" for word in words)


def _answer(changes: Counter[str], cell_pairs: Sequence[Pair]) -> str:
    both = changes.total() - changes["only before"] - changes["only after"]
    if not both:
        return "The two runs have no cell in common, so nothing can be compared."
    changed = _by_urgency(pair for pair in cell_pairs if pair.change in CHANGES)
    if not changed:
        return f"No verdict changed in {count(both, 'cell')} that both runs tried.{_new_failures(cell_pairs)}"
    first = "; ".join(map(_turn, changed[:4]))
    more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
    rest = f" {changes['the same']} of {count(both, 'cell')} did not change." if changes["the same"] else ""
    return f"{first}{more}.{rest}{_new_failures(cell_pairs)}"


def _turn(pair: Pair) -> str:
    """``layers=4: CRASH 2 of 4 before, CRASH 4 of 4 after``; how often is said where it is what changed."""
    is_rate = pair.change in (MORE_OFTEN, LESS_OFTEN)
    sides = [_often(side) if is_rate else each_verdict(side) for side in (pair.before, pair.after)]
    unsure = ", which says too little" if pair.change == "inconclusive" else ""
    return f"{pair.name}: {sides[0]} before, {sides[1]} after{unsure}"


def _by_urgency(cell_pairs: Iterable[Pair]) -> list[Pair]:
    order = list(CHANGES)
    return sorted(cell_pairs, key=lambda pair: order.index(pair.change) if pair.change in order else len(order))


def _new_failures(cell_pairs: Sequence[Pair]) -> str:
    """The cells that the later run alone tried, and that fail: nothing to compare, and not to be missed."""
    failing = [pair for pair in cell_pairs if pair.change == "only after" and pair.after.bad]
    if not failing:
        return ""
    cells = listed((f"{pair.name} ({each_verdict(pair.after)})" for pair in failing), most=3)
    return f" Tried by the later run alone, and failing: {cells}."


def _claim(moved: list[Pair]) -> str:
    if not moved:
        return ""
    if not all(pair.is_again and pair.changed for pair in moved):
        return "Observed"
    return "Isolated" if all(pair.is_one_thing for pair in moved) else "Reproduced"


def _sure(moved: list[Pair]) -> tuple[str, ...]:
    sentences: list[str] = []
    for pair in moved[:6]:
        text = f"{pair.name}: {_often(pair.before)} before, {_often(pair.after)} after"
        chance = f"{pair.by_chance:.2f}" if pair.by_chance >= SMALL else f"less than {SMALL}"
        luck = "" if pair.is_plain else f" (so much comes by chance with probability {chance})"
        sentences.append(f"{text}{luck}; {pair.differing}.")
    return tuple(sentences)


def _steps(moved: list[Pair], claim: str, after: Run) -> tuple[NextStep, ...]:
    """What would let more be claimed."""
    if claim == "Observed":
        text = "Run both sides again, in turns: nothing that was recorded differs, so the failure may come and go."
        if not all(pair.is_again for pair in moved):
            is_once = any(min(len(pair.before), len(pair.after)) < TWICE for pair in moved)
            why = "at least one was seen only once" if is_once else "so small a difference may be chance"
            text = f"Run both sides again: {why}."
        return (NextStep(text=text, command=after.argv),)
    if claim == "Reproduced":
        text = "Change one of the differing settings or flags at a time, to learn which one carries the change."
        return (NextStep(text=text),)
    return ()


def _own_files(moved: list[Pair]) -> tuple[NextStep, ...]:
    """To look at what no run records, where nothing that was recorded differs in some pair."""
    if all(pair.changed or pair.is_of_recorded_code for pair in moved):
        return ()
    return (NextStep(text="See whether the program's own files changed between the runs: they are not recorded."),)


def _steps_unmoved(changes: Counter[str], report: Report) -> tuple[NextStep, ...]:
    """Where no verdict changed: what the later run asks for by itself, which may have failed as before."""
    if _has_nothing_in_common(changes):
        return (NextStep(text="Name two runs of the same cells."),)
    return report.summary.steps


def _table(cell_pairs: tuple[Pair, ...]) -> str:
    rows: list[tuple[str, ...]] = []
    for pair in _by_urgency(cell_pairs):
        change = f"**{pair.change}**" if pair.change in CHANGES else pair.change
        rows.append((code(pair.name), _side(pair.before), _side(pair.after), change))
    return table(("cell", "before", "after", ""), rows)


def _side(trials: TrialSet) -> str:
    if not trials:
        return "-"
    took = f"a pass takes {seconds(trials.pass_s)}" if trials.pass_s is not None else seconds(trials.times_s[0])
    return f"{md(_often(trials, '({})'))}, {took}"


def _pairs(cell_pairs: Sequence[Pair]) -> str:
    changed_pairs = [pair for pair in cell_pairs if pair.change in CHANGES]
    if not changed_pairs:
        return "No verdict changed, so there is no pair to look at."
    rows: list[tuple[str, ...]] = []
    for pair in changed_pairs:
        changed = listed(map(code, pair.changed), most=8) or "nothing that was recorded"
        rows.append((code(pair.name), pair.change, changed))
    return table(("cell", "", "the trials differ in"), rows)


def _else(before: Run, after: Run) -> str:
    commands = [" ".join(_words(run.records)) for run in (before, after)]
    is_ours = all(record.trial.target == "nsa" for record in (*before.records, *after.records))
    is_recorded = all(_is_of_recorded_code(run, run.records) for run in (before, after))
    rows = [
        ("command", *(code(text) if text else "-" for text in commands)),
        ("directory", _directory_of(before), _directory_of(after)),
        ("the program", _programs_of(before), _programs_of(after)),
        ("code" if is_ours else "nsa-harness", code(before.code), code(after.code)),
        ("machine", md(before.machine.cpu), md(after.machine.cpu)),
        ("GPU", md(listed(before.machine.gpus)) or "none", md(listed(after.machine.gpus)) or "none"),
        ("torch", md(before.machine.torch), md(after.machine.torch)),
        ("Python", md(before.machine.python), md(after.machine.python)),
        ("kernel", md(before.machine.kernel), md(after.machine.kernel)),
    ]
    differing = [row for row in rows if row[1] != row[2]]
    same = "Code and machine are the same." if is_ours else "Command, nsa-harness and machine are the same."
    text = table(("", "before", "after"), differing) if differing else same
    if is_ours:
        return text
    return f"{text}\n\n{TRACKED_ALONE if is_recorded else NOT_COMPARED}"


def _directory_of(run: Run) -> str:
    """The folder in which a program ran, where one was recorded."""
    folder = run.records[0].trial.config.get("directory") if run.records else None
    return code(folder) if folder else "-"


def _programs_of(run: Run) -> str:
    """Every commit of the program that was run, or that none was recorded."""
    programs = dict.fromkeys(_commit_of(run, record) for record in run.records)
    return md(listed(map(program_of, programs))) or "-"


def _runs(before: Run, after: Run) -> str:
    rows: list[tuple[object, ...]] = []
    for name, run in (("before", before), ("after", after)):
        begun = md(run.started_at[:16].replace("T", " "))
        rows.append((name, code(run.id), begun, len(run.records), lasted(run), md(run.ended)))
    return table(("", "run", "begun", "trials", "took", "ended"), rows, right=(3, 4))
