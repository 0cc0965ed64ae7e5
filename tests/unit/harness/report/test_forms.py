"""Every form of a report: the page, JSON by its schema, JUnit, the step summary within its limit, the short form."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from harness.core.errors import SpecError
from harness.core.evidence import LogTail
from harness.core.outcome import Ending
from harness.core.ports import Block
from harness.core.verdict import Answer, Kind
from harness.report.apart import here
from harness.report.claims import lint
from harness.report.findings import Findings
from harness.report.hide import Hider
from harness.report.render import FORMS, html, markdown
from harness.report.render import json as json_form
from harness.report.render.json import published
from harness.report.sections.earlier import claims_of
from harness.report.write import build, form, write
from harness.settings import identities
from harness.solo import foreign_question, foreign_trial
from harness.store import layout

NAMES = ("threshold", "no_failure", "all_fail", "no_threshold_slow", "inconclusive", "aborted", "empty")
TEXT = [name for name in FORMS if name != "html"]


class Page(HTMLParser):
    """What a page holds: tags that were opened and not closed, ids, links, figures without an alternative."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "path", "use", "rect"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.ids, self.tags, self.loads = [], [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.add(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.loads += [value for name in ("src", "href", "xlink:href", "data") if (value := given.get(name))]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_and_asks_nobody_for_anything(drawn):
    _whole(drawn[2])


@pytest.mark.parametrize("name", ["no_threshold_slow", "aborted", "empty"])
def test_so_is_the_page_of_any_other_run(name, make_run):
    _whole(html.render(build(*make_run(name)), hide=str))


def _whole(text):
    found = Page(text)
    assert found.open == []
    assert len(set(found.ids)) == len(found.ids)  # figures share one page, and keep their ids apart
    assert all(link.startswith(("#", "data:,")) for link in found.loads)
    assert not found.tags & {"script", "iframe", "img", "object", "embed", "form"}


def test_the_first_screen_has_verdict_confidence_rank_line_and_next_step(drawn):
    head = drawn[2].partition("</header>")[0]
    for words in ("HANG (deadlock) at n_layers=5, not at n_layers=4", "Isolated.", "failed 2 of 2",
                  "confidence high", "rank 0",
                  "acquire_forever (harness/specimens/backward_deadlock.py:26)", "its stacks are in Evidence",
                  "was planted on purpose"):  # fmt: skip
        assert words in head


def test_every_figure_says_in_words_what_it_shows(drawn):
    text = drawn[2]
    assert text.count("<svg ") == text.count('role="img"') >= 5
    for svg in re.findall(r"<svg .*?</svg>", text, flags=re.DOTALL):
        assert len(re.search(r"<title[^>]*>(.*?)</title>", svg, flags=re.DOTALL)[1]) > 5
        assert len(re.search(r"<desc[^>]*>(.*?)</desc>", svg, flags=re.DOTALL)[1]) > 30


def test_what_a_program_prints_stays_text_on_the_page(make_run, parts):
    record, evidence = parts["hung"](5)
    hostile = "<script>alert(1)</script></pre><img src=x onerror=y>\x1b[2J"
    log = LogTail(id="log-stderr", stream="stderr", text=hostile, size_bytes=50)
    verdict = dataclasses.replace(record.verdict, because=f"{hostile} [x](javascript:y) ![z](http://h/z.png)")
    record = dataclasses.replace(record, verdict=verdict)
    run, run_dir = make_run(parts["Canned"](parts["spec"](), [(record, dataclasses.replace(evidence, logs=(log,)))]))
    text = html.render(build(run, run_dir), hide=str)
    assert "<script" not in text
    assert "onerror=y>" not in text.replace("onerror=y&gt;", "")
    assert "\x1b" not in text
    assert Page(text).open == []
    assert all(link.startswith(("#", "data:,")) for link in Page(text).loads)


@pytest.fixture(scope="module")
def validator():
    jsonschema = pytest.importorskip("jsonschema")
    return jsonschema.Draft202012Validator(json.loads(published()))


@pytest.mark.parametrize("name", NAMES)
def test_json_keeps_to_its_published_schema(name, make_run, validator):
    jsonschema = pytest.importorskip("jsonschema")
    run, run_dir = make_run(name)
    document = json.loads(form(run, run_dir, "json", hide=()))
    validator.validate(document)
    document["run"]["records"] = "none"
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(document)


def test_the_schema_changes_only_on_purpose():
    """The types make it, so a changed type changes what readers of report.json rely on."""
    checksum = hashlib.sha256(published().encode()).hexdigest()[:16]
    assert (json_form.SCHEMA, checksum) == (3, "6e2ca8dc51f1871d"), (
        "a core type changed: raise SCHEMA where an old reader would misread the new one, then put its checksum here"
    )


def test_junit_counts_a_failing_value_as_a_failure_and_an_untried_one_as_skipped(make_run):
    run, run_dir = make_run("threshold")
    suite = ET.fromstring(form(run, run_dir, "junit", hide=())).find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) == (
        "12",
        "1",
        "0",
        "7",
    )
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["n_layers=5"]
    assert "silent for 6.1 s in backward" in suite.find("testcase/failure").text


def test_junit_of_a_value_that_could_not_be_judged_is_an_error(make_run):
    run, run_dir = make_run("no_threshold_slow")
    suite = ET.fromstring(form(run, run_dir, "junit", hide=())).find("testsuite")
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")


@pytest.mark.parametrize(
    ("looks", "wanted"),
    [
        ([(Kind.HANG, "deadlock")], ("1", "0")),
        ([(Kind.UNRESOLVED, "moving")], ("0", "0")),
        ([(Kind.UNRESOLVED, "standing")], ("0", "1")),
        ([(Kind.HANG, "deadlock"), (Kind.UNRESOLVED, "moving")], ("0", "0")),
        ([(Kind.UNRESOLVED, "moving"), (Kind.HANG, "deadlock")], ("1", "0")),
    ],
)
def test_junit_of_a_watched_job_is_what_the_last_look_showed(looks, wanted, make_run, parts):
    canned = parts["threshold"]()
    record, evidence = canned.trials[0]
    canned.spec, canned.boundary, canned.trials = foreign_question(name="watch", question="What?"), None, []
    for repeat, (kind, cause) in enumerate(looks):
        trial = foreign_trial("python", code="1", machine="x", why="not ours", repeat=repeat)
        outcome = dataclasses.replace(record.outcome, ending=Ending.STILL_RUNNING, exit=None)
        verdict = dataclasses.replace(record.verdict, kind=kind, cause=cause)
        look = dataclasses.replace(record, trial=trial, outcome=outcome, verdict=verdict, answer=Answer.UNRESOLVED)
        canned.trials.append((look, evidence))
    suite = ET.fromstring(form(*make_run(canned), "junit", hide=())).find("testsuite")
    assert (suite.get("failures"), suite.get("errors")) == wanted


def test_a_step_summary_that_is_too_long_leaves_out_whole_sections_and_names_them(make_run, monkeypatch):
    run, run_dir = make_run("threshold")
    report = build(run, run_dir)
    whole = markdown.step_summary(report)
    long = Block(title="Long", markdown="x" * 5000)
    report = dataclasses.replace(report, blocks=(*report.blocks, ("long", long)))
    monkeypatch.setattr(markdown, "MOST_BYTES", len(whole.encode()) + markdown.RESERVE_BYTES)
    cut = markdown.step_summary(report)
    assert len(cut.encode()) <= markdown.MOST_BYTES
    assert "Left out to stay within GitHub's limit: Long." in cut
    assert cut.count("<details>") == cut.count("</details>")


@pytest.mark.parametrize("name", NAMES)
def test_the_short_form_is_short_and_claims_no_more_than_the_report(name, make_run):
    run, run_dir = make_run(name)
    text = form(run, run_dir, "short", hide=())
    assert len(text.splitlines()) <= 16
    assert lint(text) == []


SECRETS = (
    *("gpu-box-7", "ada.l", "/home/ada"),
    *("hf_" + "a" * 24, "s3cr3t-value", "10.1.2.3", "bob@gpu-box-9.example.org"),
)
SAID = {
    "Authorization: Bearer {}": "bearer-0123456789ab",
    '{{"api_key": "{}"}}': "json-key-0123",
    "password={}": "lower-pass-0123",
    "DB_PASS={}": "upper-pass-0123",
    "train.py --hf-token {} --steps 2000000": "option-0123",
    "started with {}": "only-in-the-environment",
    "data in {}/x": "/mnt/home/grace",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----": "MIIEowIBAAKCAQEA",
    "postgres://u:{}@db/x": "url-pass-0123",
    "rendezvous at {}": "node-17-of-slurm",
}
"""What a program may print, with what must not be passed on of it."""


def planted(make_run, parts):
    """A run whose every text holds names and secrets."""
    host, user, home, token, key, address, login = SECRETS
    text = f"{host} {user} {home}/x {token} WANDB_API_KEY={key} tcp://{address}:29500 {login}"
    text += "".join(f"\n{line.format(secret)}" for line, secret in SAID.items())
    record, evidence = parts["hung"](5)
    frame = dataclasses.replace(evidence.stacks[-1].threads[0].frames[2], function="gpu-box-7")
    thread = evidence.stacks[-1].threads[0]
    main = dataclasses.replace(thread, frames=(frame, *thread.frames[3:]))
    stacks = tuple(dataclasses.replace(s, threads=(main, *s.threads[1:])) for s in evidence.stacks)
    log = LogTail(id="log-stdout", stream="stdout", text=text, size_bytes=len(text))
    evidence = dataclasses.replace(evidence, logs=(log,), stacks=stacks)
    record = dataclasses.replace(record, verdict=dataclasses.replace(record.verdict, because=text, signature=text))
    canned = parts["Canned"](parts["spec"](question=f"Why does {text} hang?"), [parts["passed"](1), (record, evidence)])
    return make_run(canned)


def test_no_form_holds_names_hosts_paths_or_secrets(make_run, parts, monkeypatch):
    run, run_dir = planted(make_run, parts)
    monkeypatch.setenv("WANDB_API_KEY", "only-in-the-environment")
    monkeypatch.setenv("MASTER_ADDR", "node-17-of-slurm")
    hide = ("gpu-box-7", "ada.l", *identities())
    argv = ("nsa-harness", "run", "--", "train.py", "--api-key", "behind-an-option", "--token=joined-to-one")
    run = dataclasses.replace(run, notes=(f"seen on {SECRETS[0]}",), argv=argv)
    write(run, run_dir, hide=hide)
    written = [layout.report(run_dir, kind) for kind in ("md", "html", "json", "claims.json")]
    written += sorted(layout.figures(run_dir).iterdir())
    assert any(path.suffix == ".svg" for path in written)
    texts = {path.name: path.read_text() for path in written}
    texts |= {name: form(run, run_dir, name, hide=hide) for name in TEXT}
    for name, text in texts.items():
        every = (*SECRETS, *SAID.values(), "behind-an-option", "joined-to-one")
        assert [secret for secret in every if secret in text] == [], name
        assert "--steps 2000000" in text or name not in ("report.md", "report.json")


def test_hiding_leaves_versions_and_decorators_alone():
    hider = Hider()
    innocent = (
        *("torch 2.13.0.1", "nvidia-cublas 12.4.5.8", "@pytest.fixture", "127.0.0.1:29500", "a@b", "KEY=x"),
        *("tokens: 123456", "token=1000000", "tokenizer=byte-level", "--token-dim 64", "a basic attention"),
        *("[C] __pthread_mutex_lock@GLIBC_2.2.5 (./nptl/pthread_mutex_lock.c:93)", "exp@@GLIBC_2.29"),
        *("_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.30", "__cxa_throw@CXXABI_1.3"),
        *("std::mutex::lock@GLIBCXX_3.4.30.", "_Unwind_Resume@GCC_3.0", "cudaLaunchKernel@libcudart.so.12"),
    )
    for text in innocent:
        assert hider.text(text) == text


def test_an_address_is_hidden_also_where_its_host_holds_a_number():
    hider = Hider()
    for address in ("ada@node7.lab.org", "ada@10.2.2.5", "ada_l@gpu-2.cluster4", "ada@corp.example.com.1"):
        assert "ada" not in hider.text(f"by {address} today"), address


def test_a_template_of_ones_own_has_the_same_variables(drawn, tmp_path):
    template = tmp_path / "note.txt"
    template.write_text("{{ summary.verdict }} | {{ summary.rank }} | {{ sections | length > 5 }}")
    assert (
        html.render(drawn[1], hide=str, template=template)
        == "HANG (deadlock) at n_layers=5, not at n_layers=4 | rank 0 | True"
    )


@pytest.mark.parametrize("text", ["{% if %}", "{{ nothing.there.at.all }}", "{{ ''.__class__.__mro__ }}"])
def test_a_template_that_is_wrong_says_where(text, make_run, tmp_path):
    run, run_dir = make_run("empty")
    template = tmp_path / "bad.txt"
    template.write_text(f"first\n{text}")
    with pytest.raises(SpecError, match=r"bad\.txt"):
        form(run, run_dir, "html", template=template)


def test_how_sure_is_never_one_bare_word_on_the_first_screen(make_run):
    page = form(*make_run("no_failure"), "html", hide=())
    first = page.partition("</header>")[0]
    assert "<b>Reproduced.</b> n_layers=12 passed 29/29" in first
    assert page.count("n_layers=12 passed 29/29") == 1
    assert "<b>no rank failed</b>, no line to look at" in first


def test_figures_are_the_same_bytes_each_time(drawn):
    _, report, _ = drawn
    one, other = report.figures, here(report.findings, str)()
    assert [figure.svg for figure in one] == [figure.svg for figure in other]
    assert {figure.name for figure in one} >= {"strip", "timeline", "stacks", "scaling"}


def test_a_machine_without_matplotlib_still_gets_its_report(make_run, monkeypatch):
    run, run_dir = make_run("threshold")
    monkeypatch.setattr("harness.report.apart.find_spec", lambda _: None)
    report = build(run, run_dir, draw=here)
    assert report.figures == ()
    assert any("matplotlib is not installed" in note for note in report.summary.notes)


def test_notes_beside_a_run_stand_in_its_report_and_are_linted_too(make_run):
    run, run_dir = make_run("threshold")
    (run_dir / "notes.md").write_text("# What we think\n\nThe root cause is confirmed.\n")
    text = json_form.begin(build(run, run_dir), hide=str)["sections"]
    notes = next(section for section in text if section["name"] == "notes")
    assert notes["title"] == "What we think"
    assert "claim more than trials can show" in notes["markdown"]


def test_an_earlier_report_of_the_same_failure_that_says_otherwise_is_listed(make_run, parts):
    first, first_dir = make_run("threshold")
    layout.report(first_dir, "claims.json").write_text(json.dumps(claims_of(Findings(run=first))))
    moved = dataclasses.replace(parts["threshold"]().boundary, last_good=3, first_bad=4)
    later, later_dir = make_run(dataclasses.replace(parts["threshold"](), boundary=moved))
    found = next(block for name, block in build(later, later_dir).blocks if name == "earlier")
    assert "**contradicts it:** n_layers=5 is the first that fails there, n_layers=4 is the first that fails here" in (
        found.markdown
    )


def earlier_of(run, run_dir):
    """The rows of what earlier reports said, or nothing where the section is left out."""
    found = next((block.markdown for name, block in build(run, run_dir).blocks if name == "earlier"), "")
    return found.splitlines()[2:]


def test_a_report_of_another_limit_or_setting_neither_agrees_nor_contradicts(make_run, parts):
    """Once, a run of 256 tokens without a limit contradicted one of another attention that ran out of time."""
    first, first_dir = make_run("no_failure")
    layout.report(first_dir, "claims.json").write_text(json.dumps(claims_of(Findings(run=first))))
    canned = parts["no_failure"]()
    matrix = canned.spec.matrix
    longer = dataclasses.replace(matrix.base, config=(("train.seq_len", 512),))
    canned.spec = dataclasses.replace(canned.spec, matrix=dataclasses.replace(matrix, base=longer))
    assert earlier_of(*make_run(canned)) == []
    (row,) = earlier_of(*make_run("no_failure"))
    assert row.endswith("| agrees |")
    assert "No failing value of n_layers" in row


def test_a_report_on_another_test_is_about_another_question(make_run, parts):
    def watched(test):
        canned = parts["empty"]()
        canned.spec = foreign_question(name="pytest", question=f"Does the test {test} hang?")
        canned.boundary = None
        return make_run(canned)

    first, first_dir = watched("test_a.py::test_lock")
    layout.report(first_dir, "claims.json").write_text(json.dumps(claims_of(Findings(run=first))))

    assert earlier_of(*watched("test_a.py::test_setup")) == []
    (row,) = earlier_of(*watched("test_a.py::test_lock"))
    assert row.endswith("| the same question |")


def test_a_report_is_not_compared_with_itself_its_copy_or_a_later_one(make_run):
    run, run_dir = make_run("threshold")
    for name, changes in (("copy", {}), ("later", {"id": "other", "started_at": "2027-01-01T00:00:00Z"})):
        (run_dir.parent / name).mkdir()
        claims = json.dumps(claims_of(Findings(run=run)) | changes)
        layout.report(run_dir.parent / name, "claims.json").write_text(claims)
    assert earlier_of(run, run_dir) == []


def test_a_run_that_takes_over_the_trials_of_another_does_not_agree_with_it(make_run):
    first, first_dir = make_run("no_failure")
    layout.report(first_dir, "claims.json").write_text(json.dumps(claims_of(Findings(run=first))))
    run, run_dir = make_run("no_failure")
    run = dataclasses.replace(run, records=tuple(dataclasses.replace(r, run=first.id) for r in run.records))
    (row,) = earlier_of(run, run_dir)
    assert "neither for nor against" in row
    text = "\n".join(build(run, run_dir).summary.sure)
    assert "Reproduced" not in text
    assert f"No trial was run: all {len(run.records)} are of earlier runs." in text


def test_html_that_is_not_ours_is_shown_and_not_obeyed():
    text = html.page_of("<script>x()</script>\n\na <b onclick=x>y</b> <https://h.example>\n\n![z](http://h/z.png)")
    assert "<script" not in text
    assert "<b onclick" not in text
    assert "<img" not in text
    assert "&lt;script&gt;x()" in text
    folded = html.page_of("<details>\n<summary>Every trial (3)</summary>\n\nin it\n\n</details>")
    assert folded.startswith("<details>\n<summary>Every trial (3)</summary>")


def test_a_line_of_the_first_screen_may_break_between_two_settings_and_markup_in_it_is_text(make_run):
    run, run_dir = make_run("threshold")
    report = build(run, run_dir)
    summary = dataclasses.replace(report.summary, answer="depth=2,length=<b>2048</b>, and so on")
    page = html.render(dataclasses.replace(report, summary=summary), hide=str)
    assert "depth=2,<wbr>length=&lt;b&gt;2048&lt;/b&gt;, and so on" in page


def test_growth_is_told_with_the_interval_of_its_power_and_with_what_else_grew(make_run):
    run, run_dir = make_run("no_failure")
    fit = dataclasses.replace(run.boundary.fit, exponent_low=0.9, exponent_high=1.2)
    memory = dataclasses.replace(fit, quantity="peak memory, MiB", slope=21.1, slope_low=21.0, slope_high=21.2)
    boundary = dataclasses.replace(run.boundary, fit=fit, fits=(fit, memory))
    run = dataclasses.replace(run, answer=dataclasses.replace(run.answer, boundary=boundary))
    text = dict(build(run, run_dir).blocks)["scaling"].markdown
    assert "The best power of n_layers is 1.0 (95 %: 0.9 .. 1.2) (1 is a line)." in text
    assert "- Peak memory, MiB: 21.1 more per layer (95 %: 21 .. 21.2), R² = 0.998, power 1.0" in text
