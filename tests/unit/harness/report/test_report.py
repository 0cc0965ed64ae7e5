"""What reports promise: the claim that was earned, the evidence in its place, no names, no surprises."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
import shutil
from pathlib import Path

import pytest

from harness.core.boundary import Claim, Finding
from harness.core.campaign import OwnCommand
from harness.core.cause import CellCount
from harness.core.codec import to_json
from harness.core.evidence import Evidence, Frame, LogTail, RankFacts, StackSample, ThreadStack, WorkerResult
from harness.core.outcome import Cleanup, StopReason, Survivor
from harness.core.point import Point
from harness.core.ports import Block
from harness.core.record import Run
from harness.core.trial import NEVER_S, Budget, Limit, Prediction
from harness.core.verdict import Answer, Confidence, Kind, Verdict
from harness.reading.frames import deciding_thread, telling_frame
from harness.report.claims import lint
from harness.report.figures.curves import draw_fit
from harness.report.findings import Findings
from harness.report.hide import Hider
from harness.report.next_steps import next_steps
from harness.report.over_cells import headline
from harness.report.render import json as json_render
from harness.report.render import markdown, terminal
from harness.report.sections import SECTIONS
from harness.report.sections.threshold import differences, fit_in_words, legend, strip_text
from harness.report.seen import cleanup, healthy, limits
from harness.report.stacks import busy_threads, elsewhere
from harness.report.summary import rank_of
from harness.report.text import code, command, details, fence, md, ranges, seconds, short_path, table, wrap
from harness.report.words import certificate, claim_of, grows, span, what_passes_miss
from harness.report.write import build, form, summary_text, write
from harness.search.scaling import fit_scaling
from harness.store import layout
from harness.store.history import read_evidence
from harness.store.shelf import NOT_FINISHED

NAMES = ("threshold", "no_failure", "all_fail", "no_threshold_slow", "inconclusive", "aborted", "empty")


def with_boundary(run: Run, **changes: object) -> Run:
    assert run.boundary is not None
    boundary = dataclasses.replace(run.boundary, **changes)
    return dataclasses.replace(run, answer=dataclasses.replace(run.answer, boundary=boundary))


@pytest.mark.parametrize("section", list(SECTIONS))
@pytest.mark.parametrize("name", NAMES)
def test_every_section_bears_every_run(section, name, make_run):
    run, run_dir = make_run(name)
    block = SECTIONS.load(section)(Findings(run=run, run_dir=run_dir))
    assert block is None or (isinstance(block, Block) and block.markdown.strip())


@pytest.mark.parametrize("name", NAMES)
def test_a_report_can_be_made_after_the_trial_folders_are_gone(name, make_run):
    run, run_dir = make_run(name)
    shutil.rmtree(run_dir / "trials", ignore_errors=True)
    text = markdown.render(build(run, run_dir))
    assert headline(Findings(run=run)).split(",")[0].split(" (")[0] in text
    if name == "threshold":
        assert "The evidence of trial 5 is missing" in text


def test_a_report_of_a_run_without_evidence_says_so_and_asks_for_some(make_run):
    run, run_dir = make_run("threshold")
    assert not any("evidence" in note for note in build(run, run_dir).summary.notes)
    missing = run.records[4].trial.key
    shutil.rmtree(layout.trial(run_dir, missing))
    (note,) = (note for note in build(run, run_dir).summary.notes if "evidence" in note)
    assert note.startswith(f"The evidence of 1 of {len(run.records)} trials is missing")

    shutil.rmtree(run_dir / "trials")
    report = build(run, run_dir)
    assert f"The evidence of the {len(run.records)} trials is missing" in " ".join(report.summary.notes)
    text = terminal.text(report, run_dir / "report.md")
    assert "note: The evidence of the" in text
    assert "Look at the function" not in text
    assert report.summary.steps[0].text.startswith("Run it again to see where it failed: its evidence (")
    assert report.summary.steps[0].command == run.argv


def test_evidence_that_cannot_be_read_is_nothing_to_look_at(make_run):
    run, run_dir = make_run("threshold")
    layout.evidence(layout.trial(run_dir, run.records[4].trial.key)).write_text("{")
    assert build(run, run_dir).summary.steps[0].text.startswith("Run it again to see where it failed")


@pytest.mark.parametrize(
    ("target", "rank", "before"), [("command", 0, ""), ("command", 3, "rank 3, "), ("nsa", 0, "rank 0, ")]
)
def test_of_a_program_whose_evidence_is_gone_rank_0_is_no_rank(make_run, target, rank, before):
    run, run_dir = make_run("threshold")
    shutil.rmtree(run_dir / "trials")
    records = []
    for record in run.records:
        config = {**record.trial.config, "command": "python train.py"}
        trial = dataclasses.replace(record.trial, target=target, config=config)
        verdict = dataclasses.replace(record.verdict, rank=rank)
        records.append(dataclasses.replace(record, trial=trial, verdict=verdict))
    summary = build(dataclasses.replace(run, records=tuple(records)), run_dir).summary
    assert summary.before_place == before


def test_damaged_evidence_spoils_its_own_section_only(make_run):
    run, run_dir = make_run("threshold")
    bad = layout.evidence(layout.trial(run_dir, run.records[4].trial.key))
    bad.write_text("{")
    text = markdown.render(build(run, run_dir))
    assert "Not readable:" in text
    assert "## Trials" in text
    assert "## Reproduce" in text


def test_the_claim_word_is_the_one_that_the_search_earned(make_run):
    run, _ = make_run("threshold")
    counts = "n_layers=5 failed 2 of 2"
    assert claim_of(Findings(run=run)) == (
        "Isolated",
        f"{counts}; with one thing changed there: no-fault passes 3 of 3.",
    )
    assert claim_of(Findings(run=with_boundary(run, claim=Claim.REPRODUCED))) == ("Reproduced", f"{counts}.")
    few = f"{counts}. These are too few failures to tell from false alarms."
    assert claim_of(Findings(run=with_boundary(run, claim=Claim.OBSERVED))) == ("Observed", few)
    run = with_boundary(run, claim=Claim.OBSERVED, last_good=3)
    assert claim_of(Findings(run=run)) == ("Observed", f"{counts}. At least one side was seen only once.")


def test_an_inconclusive_run_claims_no_boundary_whatever_its_claim_field_says(make_run):
    run, _ = make_run("inconclusive")
    assert "No boundary is claimed" in claim_of(Findings(run=with_boundary(run, claim=Claim.ISOLATED)))[1]


def test_the_certificate_rounds_the_excluded_rate_up(make_run):
    run, _ = make_run("threshold")
    text = certificate(Findings(run=run))
    assert "n_layers=4 passed 15/15: any failure rate >= 0.19 at n_layers <= 4 would have been seen" in text
    stated = 0.19
    assert 1 - (1 - stated) ** 15 >= 0.95  # the sentence is true of the number it states
    assert 1 - (1 - (stated - 0.01)) ** 15 < 0.95


def test_an_incomplete_certificate_is_called_that(make_run):
    run, _ = make_run("threshold")
    unfinished = with_boundary(run, certified=False, certificate_passes=29)
    assert "The certificate is incomplete" not in certificate(Findings(run=unfinished))  # a note says it, and how far
    assert any("--certify" in step.command for step in next_steps(Findings(run=unfinished)))


def test_a_planted_fault_is_named_in_the_first_lines(make_run):
    run, run_dir = make_run("threshold")
    top = "\n".join(markdown.render(build(run, run_dir)).splitlines()[:8])
    assert "was planted on purpose" in top
    assert "was planted on purpose" in summary_text(run)


def test_control_trials_do_not_count_for_the_threshold(make_run):
    run, _ = make_run("threshold")
    assert len(run.records) == 23
    five = Findings(run=run).at_value(5)
    assert (len(five), five.bad, five.good) == (2, 2, 0)


def test_a_control_shows_everything_in_which_it_differs(make_run, parts):
    run, _ = make_run("threshold")
    failed, control = run.records[4].trial, run.records[-1].trial
    assert differences(failed, control) == ["fault: backward-deadlock@n_layers>=5 -> none"]
    other = dataclasses.replace(control, config={**control.config, "train": {"seq_len": 64, "steps": 8}})
    assert "train.seq_len: 128 -> 64" in differences(failed, other)


def test_the_strip_marks_every_state_with_its_own_character(make_run, parts):
    trials = [parts["passed"](1), parts["slow"](2), parts["hung"](3), parts["passed"](4), parts["hung"](4)]
    run, _ = make_run(parts["Canned"](parts["spec"](), trials, None, "interrupted"))
    assert strip_text(Findings(run=run)).startswith("n_layers  1 . 2 s 3 X 4 x 5   6 ")
    assert legend(Findings(run=run)) == (
        "`.` passed every time · `X` failed every time · `x` failed in some trials · "
        "`s` ran out of time, still making progress · blank: not tried"
    )


def test_the_strip_has_a_bar_only_where_a_threshold_was_found(make_run):
    assert "4 . | 5 X 6 " in strip_text(Findings(run=make_run("threshold")[0]))
    for name in ("no_failure", "all_fail", "no_threshold_slow", "inconclusive", "aborted"):
        assert "|" not in strip_text(Findings(run=make_run(name)[0]))


def test_the_name_of_a_cell_parts_after_a_comma_where_it_is_wider_than_the_terminal():
    name = ",".join(f"flag_{number}=true" for number in range(8))
    lines = wrap(f"At {name}, trial 2: silent for 7.6 s.", indent="  ")
    assert max(map(len, lines)) <= 80
    assert all(line.endswith(",") for line in lines[:-1])
    assert "".join(line.strip() for line in lines).startswith(f"At {name},")


def test_a_long_axis_wraps_within_the_width(make_run, parts):
    from harness.core.point import Axis, AxisType

    wide = Axis(name="seq_len", path="train.seq_len", type=AxisType.ORDERED, values=tuple(range(128, 4096, 64)))
    run, _ = make_run(parts["Canned"](parts["spec"](axis=wide), [parts["passed"](1)], None, "interrupted"))
    lines = strip_text(Findings(run=run)).splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 76


def test_the_failure_sought_comes_first_then_the_others(make_run):
    run, _ = make_run("inconclusive")
    assert [(g.value, str(g.first.verdict)) for g in Findings(run=run).groups] == [
        (8, "HANG (deadlock)"),
        (6, "UNRESOLVED"),
    ]


def test_a_trial_that_did_not_show_the_failure_sought_is_in_no_group_with_those_that_did(make_run):
    run, _ = make_run("all_fail")
    once, again = run.records
    run = dataclasses.replace(run, records=(once, dataclasses.replace(again, answer=Answer.UNRESOLVED)))
    assert [(g.value, g.is_bad, len(g)) for g in Findings(run=run).groups] == [(1, True, 1), (1, False, 1)]


def test_requested_against_effective_names_what_differs(make_run, parts):
    record, evidence = parts["passed"](1)
    odd = dataclasses.replace(evidence, config_differences=("model.dim: asked 64, ran 128",))
    run, run_dir = make_run(parts["Canned"](parts["spec"](), [(record, odd), parts["passed"](2)]))
    text = SECTIONS.load("fixed")(Findings(run=run, run_dir=run_dir)).markdown
    assert "agrees in 1 of 2 trials" in text
    assert "- model.dim: asked 64, ran 128 (trials 1)" in text


def test_trials_with_other_kernels_are_pointed_out(make_run, parts):
    record, evidence = parts["passed"](2)
    other = dataclasses.replace(evidence, kernels=evidence.kernels[:1])
    run, run_dir = make_run(parts["Canned"](parts["spec"](), [parts["passed"](1), (record, other)]))
    assert "did not all run the same kernels" in SECTIONS.load("kernels")(Findings(run=run, run_dir=run_dir)).markdown


def test_what_a_program_prints_cannot_break_out_of_its_place(make_run, parts):
    record, evidence = parts["hung"](5)
    hostile = "```\n</details>\n# Root cause confirmed\n\x1b[2J| a | b |\x00"
    log = LogTail(id="log-stderr", stream="stderr", text=hostile, size_bytes=50)
    verdict = dataclasses.replace(record.verdict, because="a | b\n</details> <b>x</b> *y*")
    run, run_dir = make_run(
        parts["Canned"](
            parts["spec"](),
            [(dataclasses.replace(record, verdict=verdict), dataclasses.replace(evidence, logs=(log,)))],
        )
    )
    text = markdown.render(build(run, run_dir))
    assert "\x1b" not in text
    assert "\x00" not in text
    assert lint(text) == []
    assert "````text\n```\n</details>" in text
    assert "a \\| b \\</details> \\<b>x\\</b> \\*y\\*" in text


def test_names_of_people_and_hosts_are_hidden(make_run):
    run, run_dir = make_run("threshold")
    named = dataclasses.replace(
        run, argv=("nsa-harness", "bisect", "--runs", "/home/ada/runs"), notes=("seen on gpu-box-7 by ada.l",)
    )
    write(named, run_dir, hide=("gpu-box-7", "ada.l", "/data/people/ada"))
    for kind in ("md", "json"):
        text = layout.report(run_dir, kind).read_text()
        assert "gpu-box-7" not in text
        assert "ada.l" not in text
        assert "/home/ada" not in text
        assert "~/runs" in text


def test_hiding_leaves_words_that_only_contain_a_name():
    hider = Hider(("node", "/srv/ada"))
    assert hider.text("node nodes /srv/ada/x /srv/adam") == "(hidden) nodes ~/x /srv/adam"
    assert hider.text("at C:/x and ./home/y.py") == "at C:/x and ./home/y.py"


def test_the_json_twin_is_strict_json_and_holds_the_run(make_run):
    run, run_dir = make_run("threshold")
    odd = dataclasses.replace(run.records[0].measurement, facts=(("loss", math.nan),))
    records = (dataclasses.replace(run.records[0], measurement=odd), *run.records[1:])
    document = json_render.render(build(dataclasses.replace(run, records=records), run_dir))
    data = json.loads(document, parse_constant=lambda name: pytest.fail(f"not JSON: {name}"))
    assert data["answer"] == headline(Findings(run=run))
    assert data["run"]["answer"]["boundary"]["first_bad"] == 5
    assert len(data["run"]["records"]) == 23
    names = [s["name"] for s in data["sections"]]
    assert names == ["answer", *(n for n in SECTIONS if n in names)]


def test_write_puts_both_files_beside_the_journal(make_run):
    run, run_dir = make_run("no_failure")
    assert write(run, run_dir) == layout.report(run_dir)
    assert json.loads(layout.report(run_dir, "json").read_text())["claim_word"] == "reproduced"
    assert json.loads(form(run, run_dir, "json"))["title"] == run.spec.question


def test_500_trials_read_their_evidence_a_bounded_number_of_times(make_run, parts, monkeypatch):
    trials = [parts["passed"](1 + k % 4, k) for k in range(490)] + [parts["hung"](5, k) for k in range(10)]
    canned = parts["threshold"]()
    run, run_dir = make_run(dataclasses.replace(canned, trials=trials))
    reads = 0
    real = Path.read_text

    def counting(self, *args, **kwargs):
        nonlocal reads
        reads += 1
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", counting)
    text = markdown.render(build(run, run_dir))
    assert reads <= 2 * 500 + 10
    assert text.count("\n| 5") >= 1


def test_the_waiting_function_is_the_innermost_of_ours(make_run):
    def frame(function, file, *, native=False):
        return Frame(function=function, file=file, line=3, native=native)

    lib = "/opt/v/lib/python3.12"
    main = ThreadStack(
        tid=1,
        name="MainThread",
        frames=(
            frame("futex", "libc.so.6", native=True),
            frame("wait", f"{lib}/threading.py"),
            frame("get_batch", "/x/nsa/train/data.py"),
            frame("main", "/x/nsa/train/trainer.py"),
        ),
    )
    assert telling_frame(main).function == "get_batch"
    engine = ThreadStack(
        tid=1,
        name="MainThread",
        frames=(
            frame("torch::autograd::ReadyQueue::pop()", "libtorch.so", native=True),
            frame("backward", f"{lib}/site-packages/torch/_tensor.py"),
        ),
    )
    worker = ThreadStack(tid=2, name="pt_autograd_0", frames=(frame("hook", "/x/model.py"),))
    sample = StackSample(id="s", source="py-spy", native=True, t_s=1, rank=0, pid=1, threads=(engine, worker))
    assert deciding_thread(sample) is worker


@pytest.mark.parametrize(
    ("ended", "took"), [(NOT_FINISHED, "at least 0.066 s (its journal ends there)"), ("answered", "0.066 s")]
)
def test_of_a_run_that_was_killed_only_what_its_journal_knows_of_its_time_is_told(make_run, ended, took):
    """A run that was killed after 2.5 s had taken 0.066 s."""
    run, run_dir = make_run("threshold")
    page = markdown.render(build(dataclasses.replace(run, ended=ended, seconds=0.066), run_dir))
    assert f" trials in {took}: " in page
    assert f"It took {took} here" in page


def test_more_time_is_proposed_from_what_was_predicted(make_run):
    run, _ = make_run("no_threshold_slow")
    assert run.boundary.finding is Finding.NO_THRESHOLD_SLOW
    # 12 layers: 8 steps of 12 * 9/8 s and 0.4 s beside them make 108.4 s; twice that, up to the next 10
    assert next_steps(Findings(run=run))[0].command[-2:] == ("--total", "220s")
    whole = dataclasses.replace(run.boundary.fit, quantity="seconds per trial", intercept=0.4, slope=9.0)
    assert next_steps(Findings(run=with_boundary(run, fit=whole)))[0].command[-2:] == ("--total", "220s")


def test_far_beyond_what_was_measured_the_time_it_needs_is_a_lower_bound_and_more_is_allowed(make_run):
    run, run_dir = make_run("no_threshold_slow")
    near = [point for point in run.boundary.fit.points if point[0] < 3]
    assert max(near)[0] == 2
    far = with_boundary(run, fit=dataclasses.replace(run.boundary.fit, points=tuple(near)))
    step = next_steps(Findings(run=far))[0]
    assert step.text == (
        "Give it time: n_layers=12 is predicted to need at least about 108 s (this is 6 times beyond, where time may "
        "grow faster); this allows four times that."
    )
    assert step.command[-2:] == ("--total", "440s")
    text = SECTIONS.load("scaling")(Findings(run=far, run_dir=run_dir)).markdown
    assert "| 12 | - | - | at least about 14 s (predicted) |" in text
    assert "| 8 | - | - | 9.0 s (predicted) |" in text
    drawn = draw_fit(far.boundary.fit, axis="n_layers", hide=str)
    assert "Predicted at 12: at least about 14 s." in drawn.alt


def test_a_trial_far_beyond_what_was_measured_says_so_beside_its_healthy_time():
    line = Prediction(
        total_s=98.0, total_high_s=590.0, silence_s=9.0, silence_high_s=54.0, basis="5 sizes", beyond=16.0
    )
    assert healthy(line) == (
        "at least about 98 s predicted, taken as healthy up to 9 min 50 s; longest silence 9.0 s, up to "
        "54 s (5 sizes; this is 16 times beyond, where time may grow faster)"
    )


def test_a_prediction_of_less_than_was_not_enough_is_belied_and_not_made(make_run):
    """Time that doubles with each layer: the line through the first of them says less than the limit that ran out."""
    run, _ = make_run("no_threshold_slow")
    limit_s = Findings(run=run).slow_groups[0].first.record.trial.budget.total.seconds
    short = {"quantity": "seconds per trial", "intercept": 0.1, "slope": 0.01, "predicted": ((12.0, 0.9 * limit_s),)}
    step = next_steps(Findings(run=with_boundary(run, fit=dataclasses.replace(run.boundary.fit, **short))))[0]
    assert "predicts less than was not enough" in step.text
    assert step.command[-2:] == ("--total", f"{4 * limit_s:.0f}s")


def test_without_a_fit_more_time_is_a_multiple_of_the_limit(make_run):
    run, _ = make_run("no_threshold_slow")
    assert next_steps(Findings(run=with_boundary(run, fit=None)))[0].command[-2:] == ("--total", "240s")


def test_several_slow_values_make_one_sentence(make_run, parts):
    canned = parts["no_threshold_slow"]()
    run, _ = make_run(dataclasses.replace(canned, trials=[*canned.trials, parts["slow"](10)]))
    counts = "n_layers 8, 10: 2 of 2 trials ran out of time while still making progress."
    assert claim_of(Findings(run=run)) == ("Observed", counts)


def test_a_fit_of_steps_is_not_taken_for_one_of_trials(make_run):
    run, run_dir = make_run("no_threshold_slow")
    assert "a step takes 1.12 s more per layer" in headline(Findings(run=run))
    text = SECTIONS.load("scaling")(Findings(run=run, run_dir=run_dir)).markdown
    assert "measured seconds per step (median)" in text
    assert "| 4 | 1 pass | 4.5 s | 4.5 s |" in text  # the step, not the 36.4 s of the trial
    assert "| 12 | - | - | 14 s (predicted) |" in text


def test_a_planted_fault_leads_to_the_real_question(make_run):
    run, _ = make_run("threshold")
    assert next_steps(Findings(run=run))[1].command == ("nsa-harness", "bisect", "--axis", "n_layers")


@pytest.mark.parametrize("word", ["confirmed", "Definitively", "proven", "root cause", "fundamental", "certainly"])
def test_the_linter_sees_words_that_claim_too_much(word):
    assert lint(f"fine\n\nthis is {word} now") == [
        f"line 3: {word!r} claims too much; say observed, reproduced or isolated"
    ]
    assert lint(f"```text\nthis is {word}\n```\nand `{word}` quoted") == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0421, "0.042 s"), (0.1, "0.10 s"), (0.999, "1.0 s"), (7.31, "7.3 s"), (72, "72 s"), (125, "2 min 5 s"),
     (11045, "3 h 4 min")],
)  # fmt: skip
def test_durations_read_at_a_glance(value, text):
    assert seconds(value) == text


def test_markdown_pieces():
    assert ranges([1, 2, 3, 5, 7, 8]) == "1..3, 5, 7, 8"
    assert ranges([0.5, 1]) == "0.5, 1"
    assert code("a`b|c") == "`` a`b\\|c ``"
    assert md("x <= 3 [see](y) a|b") == "x <= 3 \\[see](y) a\\|b"
    assert fence("a\n```b", "text") == "````text\na\n```b\n````"
    assert table(("a", "b"), [(1, "x")], right=(0,)) == "| a | b |\n|--:|:--|\n| 1 | x |"
    assert details("s", "b") == "<details>\n<summary>s</summary>\n\nb\n\n</details>"
    assert short_path("/opt/v/lib/python3.12/site-packages/torch/_tensor.py") == "torch/_tensor.py"
    assert short_path("/usr/lib/x86_64-linux-gnu/libc.so.6") == "libc.so.6"
    assert short_path("/opt/v/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so") == "torch/lib/libtorch_cpu.so"
    assert short_path("/home/x/src/nsa/train/trainer.py") == "nsa/train/trainer.py"
    assert command(("x", "--seq-len", "512", "--on"), width=16) == ["x \\", "    --seq-len 512 \\", "    --on"]
    wide = command(("nsa-harness", "--fault", "a b>=5", "x" * 70))
    assert wide == ["nsa-harness --fault 'a b>=5' \\", "    " + "x" * 70]


def test_all_ranks_are_alike_when_each_raised_the_same_and_not_otherwise(make_run, parts):
    canned = parts["threshold"]()
    record, evidence = next((r, e) for r, e in canned.trials if r.verdict.kind is Kind.HANG)
    record = dataclasses.replace(record, verdict=dataclasses.replace(record.verdict, rank=None))

    def ended(*messages):
        said = {"id": "result", "status": "raised", "steps_done": 0, "exception": "RuntimeError"}
        results = [WorkerResult(message=message, **said) for message in messages]
        ranks = tuple(RankFacts(id=f"rank-{i}", rank=i, result=result) for i, result in enumerate(results))
        canned.trials = [(record, dataclasses.replace(evidence, ranks=ranks))]
        run, run_dir = make_run(canned)
        return rank_of(Findings(run=run, run_dir=run_dir), record)

    assert ended("marked ready twice", "marked ready twice") == "all ranks alike"
    assert ended("marked ready twice", "lost its peer") == "no single rank"
    assert ended("marked ready twice") == "no single rank"


def test_growth_is_claimed_only_where_its_interval_is_above_zero(make_run):
    run, _ = make_run("threshold")
    findings, fit = Findings(run=run), dataclasses.replace(run.boundary.fit, law="", exponent=None)
    falls = grows(findings, dataclasses.replace(fit, slope=-0.016, slope_low=-0.34, slope_high=0.31))
    assert falls == "No growth is shown: a step may take up to 0.31 s more per layer (95 %: -0.34 .. 0.31)."
    rises = grows(findings, dataclasses.replace(fit, slope=5.1, slope_low=-0.29, slope_high=10.5, r_squared=0.8))
    assert rises == (
        "A step took 5.1 s more per layer (95 %: -0.29 .. 10.5); "
        "that it does not grow is not ruled out by so few values."
    )
    noise = grows(findings, dataclasses.replace(fit, slope=5.1, slope_low=-0.29, slope_high=10.5, r_squared=0.2))
    assert noise == "No growth is shown: a step may take up to 10.5 s more per layer (95 %: -0.29 .. 10.5)."
    less = grows(findings, dataclasses.replace(fit, slope=-0.5, slope_low=-0.6, slope_high=-0.4))
    assert less == "No growth is shown: a step takes no more per layer (95 %: -0.6 .. -0.4)."


@pytest.mark.parametrize(
    ("good", "bad", "of", "less"),
    [
        (1, 9, 105, ", which a failure in 9 % of runs would also give"),
        (10, 9, 105, ", which a failure in 9 % of runs would also give"),
        (40, 9, 105, ""),
        (1, 4, 4, ""),
        (0, 9, 105, ""),
    ],
)
def test_passes_beside_a_rare_failure_stand_there_with_what_they_are_worth(good, bad, of, less):
    back = CellCount(cell=Point.of({}), good=good)
    assert what_passes_miss(back, failing=CellCount(cell=Point.of({}), good=of - bad, bad=bad)) == less


def test_two_values_are_no_word_about_growth(make_run):
    run, _ = make_run("threshold")
    findings, fit = Findings(run=run), fit_scaling("seconds per step", [(1, 0.50), (2, 0.53)])
    assert grows(findings, fit) == ""
    assert fit_in_words(findings, fit) == "Two values: no interval can be given."
    assert "The line through them shows no growth." in draw_fit(fit, axis="n_layers", hide=str).alt


def test_where_no_growth_is_shown_no_line_is_given_in_numbers(make_run):
    run, _ = make_run("threshold")
    flat = fit_scaling("seconds per step", [(1, 0.51), (2, 0.49), (4, 0.50), (8, 0.53), (12, 0.48)])
    assert flat.law == ""
    text = fit_in_words(Findings(run=run), flat)
    assert text.startswith("No growth is shown: a step may take up to 0.00")
    assert " x " not in text


def test_a_limit_that_never_ends_a_trial_is_called_none():
    stall, none = Limit(seconds=4.0, source="default"), Limit(seconds=NEVER_S, source="none was set")
    told = limits(Budget(startup=stall, stall=stall, total=none))
    assert told == "start-up 4.0 s (default); stall 4.0 s (default); no total limit (none was set)"


def test_a_signal_is_not_said_to_go_to_process_one():
    assert cleanup(Cleanup(signals=((8.8, "SIGTERM", 1),), ended=1)).startswith("SIGTERM to 1 process at 8.8 s; ")


def test_on_a_terminal_the_command_of_what_is_still_there_is_as_it_was():
    done = Cleanup(survivors=(Survivor(pid=7, state="D", command=r"cp **/*.pt C:\tmp"),))
    assert cleanup(done, is_page=False) == r"no signal needed; still there: PID 7 in state D: cp **/*.pt C:\tmp"
    assert cleanup(done).startswith("no signal needed; **still there:** PID 7")


def test_the_thread_that_may_hold_the_lock_is_shown_and_a_parked_one_is_not():
    waits = ThreadStack(tid=7, name="MainThread", frames=(Frame(function="load", file="/a/train.py", line=14),))
    holds = ThreadStack(tid=8, name="prefetch", frames=(Frame(function="fetch", file="/a/train.py", line=8),))
    parked = ThreadStack(
        tid=9, name="pool", frames=(Frame(function="wait", file="/usr/lib/python3.11/threading.py", line=3),)
    )
    sample = StackSample(
        id="stack-1", source="py-spy", native=False, t_s=1.0, rank=0, pid=7, threads=(waits, holds, parked)
    )
    assert busy_threads(sample, beside=waits) == ["thread prefetch: fetch (train.py:8)"]


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        (Kind.UNRESOLVED, ["process 9, main thread: pull (serve.py:25)", "process 9, thread pool: act (serve.py:7)"]),
        (Kind.HANG, []),
    ],
)
def test_where_nothing_is_decided_the_reader_sees_where_every_process_is_in_the_programs_own_code(kind, want):
    def thread(tid, name, function, file, line):
        return ThreadStack(tid=tid, name=name, frames=(Frame(function=function, file=file, line=line),))

    threads = {
        7: [thread(7, "MainThread", "get", "/a/train.py", 3)],
        8: [thread(8, "MainThread", "run", "/usr/lib/python3.11/threading.py", 5)],
        9: [thread(9, "MainThread", "pull", "/a/serve.py", 25), thread(10, "pool", "act", "/a/serve.py", 7)],
    }
    stacks = tuple(
        StackSample(id=f"stack-{pid}", source="py-spy", native=False, t_s=1.0, rank=None, pid=pid, threads=tuple(of))
        for pid, of in threads.items()
    )
    verdict = Verdict(kind=kind, rule="r", because="b", cites=("stack-7",), confidence=Confidence.LOW)
    assert elsewhere(Evidence(steps_wanted=0, stacks=stacks, main=7), verdict) == want


def test_the_page_of_an_ended_run_names_no_command_that_goes_on_with_it(make_run):
    for name, is_whole in (("threshold", True), ("aborted", False)):
        run, run_dir = make_run(name)
        assert ("--resume" in markdown.render(build(run, run_dir)).split("## Reproduce")[1]) is not is_whole


def test_an_answer_without_a_failure_names_the_value_that_stayed_inconclusive(make_run):
    run, _ = make_run("no_failure")
    fifth = dataclasses.replace(
        run.records[4].verdict, kind=Kind.INFRA, rule="infra", because="it never started", cause="never-started"
    )
    records = [dataclasses.replace(record, answer=Answer.UNRESOLVED, verdict=fifth) for record in run.records[4:5]]
    unsure = dataclasses.replace(run, records=(*run.records[:4], *records, *run.records[5:]))
    assert headline(Findings(run=run)).startswith("No failing value of n_layers in 1..12. ")
    assert headline(Findings(run=unsure)).startswith(
        "No failing value of n_layers in 1..12, but 5 stayed inconclusive. "
    )


def test_an_answer_about_a_single_value_names_that():
    assert span([3]) == "3"
    assert span([1, 2, 7]) == "1..7"


def silent_before_a_step(run, run_dir, reason):
    """``run`` with its failing trials ended for ``reason`` in a silence before the first step."""
    records = []
    for record in run.records:
        if record.verdict.kind is Kind.HANG:
            evidence = read_evidence(run_dir, record.trial.key)
            evidence = dataclasses.replace(evidence, heartbeats=(), heartbeats_total=0, steps_done=0)
            folder = layout.trial(run_dir, record.trial.key)
            layout.evidence(folder).write_text(json.dumps(to_json(evidence)))
            record = dataclasses.replace(record, outcome=dataclasses.replace(record.outcome, stopped_by=reason))
        records.append(record)
    layout.journal(run_dir).unlink()  # which has the checksums
    return dataclasses.replace(run, records=tuple(records))


def test_a_silence_before_the_first_step_is_held_against_the_start_up_limit(make_run):
    run, run_dir = make_run("threshold")
    assert "silent for 6.1 s, the stall limit is 4.0 s" in markdown.render(build(run, run_dir))
    run = silent_before_a_step(run, run_dir, StopReason.CERTAIN)
    startup = seconds(run.records[-1].trial.budget.startup.seconds)
    text = markdown.render(build(run, run_dir))
    assert f"silent for 6.1 s, the start-up limit is {startup}" in text
    assert "the stall limit is" not in text


@pytest.mark.parametrize(
    ("reason", "decides"),
    [
        (StopReason.STALL, "the same with the stall limit at 40 s: `nsa-harness bisect .*--stall 40s`"),
        (StopReason.STARTUP, "the same with the start-up limit at .*: `nsa-harness bisect .*--startup \\d+s`"),
        (StopReason.PACE, "the same with the stall limit at 60 s: `nsa-harness bisect .*--stall 60s`"),
        (StopReason.CERTAIN, "start it without nsa-harness, and look later with nsa-harness watch PID"),
    ],
)
def test_what_decides_between_slow_and_hung_is_more_of_what_ended_it(make_run, reason, decides):
    run, run_dir = make_run("threshold")
    run = silent_before_a_step(run, run_dir, reason)
    (row,) = (line for line in markdown.render(build(run, run_dir)).splitlines() if "a slow step, not a hang" in line)
    assert re.search(decides, row)
    assert ("the same with" in row) is (reason is not StopReason.CERTAIN)


def test_what_decides_between_hung_and_slow_is_the_command_of_the_next_step(make_run):
    run, run_dir = make_run("no_threshold_slow")
    command = shlex.join(next_steps(Findings(run=run))[0].command)
    (row,) = (line for line in markdown.render(build(run, run_dir)).splitlines() if "a hang, not a slow step" in line)
    assert command.endswith("--total 220s")
    assert row.endswith(f"| the same with more time: `{command}` |")


def test_a_program_that_was_not_ended_by_a_limit_is_named_to_be_started_alone(make_run):
    run, run_dir = make_run("threshold")
    line = ("python", "train.py", "--layers", "7")
    own = OwnCommand(line=line, verdict="HANG", count=CellCount(cell=Point(), good=0, bad=1))
    run = dataclasses.replace(run, answer=dataclasses.replace(run.answer, commands=(own,)))
    assert "a slow step comes to its end: `python train.py --layers 7`" in markdown.render(build(run, run_dir))
