"""A report that is passed on holds its evidence; it is computed again, and a changed digit or word is named."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from harness.cli.main import main
from harness.report.bundle import bundle, is_bundle, pages, write_pages
from harness.report.hide import Hider
from harness.report.verify import bundles, verify
from harness.search.scaling import fit_scaling, slope_through
from harness.store import fsck, layout
from harness.store.archive import unpacked
from harness.store.files import read_text
from harness.store.run_store import find_run, read_run

pytestmark = pytest.mark.usefixtures("_each_figure_drawn_once")


def as_recorded(folder):
    """A judge that gives every trial of a canned run the verdict it was given: canned evidence is not a real one's."""
    run = read_run(unpacked(folder))
    recorded = {record.trial.key: record.verdict for record in run.records}
    return lambda case: recorded[case.trial.key]


def checked(folder):
    return verify(folder, judge=as_recorded(folder), slope=slope_through)


def places(verified):
    return [difference.place for difference in verified.differences]


@pytest.fixture(scope="module")
def computed(drawn, tmp_path_factory):
    """The pages of one bundle, made once for all who change them."""
    folder = tmp_path_factory.mktemp("computed") / "passed_on"
    bundle(drawn[0], folder, hider=Hider())
    return folder, pages(unpacked(folder))


@pytest.fixture
def folder(computed, tmp_path):
    """A copy of that bundle, for a test of its own to change."""
    return shutil.copytree(computed[0], tmp_path / "passed_on")


def test_a_bundle_of_every_kind_of_run_is_the_same_again(make_run, make_campaign, tmp_path):
    runs = [make_run(name)[1] for name in ("threshold", "no_threshold_slow", "aborted", "empty")]
    runs.append(make_campaign([({}, "pass", 0), ({"n_layers": 12}, "hang", 0), ({"n_layers": 12}, "hang", 1)])[1])
    for number, run_dir in enumerate(runs):
        bundle(run_dir, tmp_path / str(number), hider=Hider())
        verified = checked(tmp_path / str(number))
        assert verified.differences == ()
        assert verified.unjudged == 0


def test_one_changed_digit_and_one_changed_word_are_named_with_their_sentence(folder):
    page = layout.report(folder)
    text = page.read_text()
    page.write_text(text.replace("15 of 15 trials", "16 of 15 trials", 1))
    (found,) = checked(folder).differences
    assert found.place.startswith("report.md:3")
    assert "16 of 15" in found.text
    assert "15 of 15" in found.computed
    page.write_text(text)
    html = layout.report(folder, "html")
    html.write_text(html.read_text().replace("hangs", "crashes", 1))
    assert ["hangs" in d.computed and "crashes" in d.text for d in checked(folder).differences] == [True]


@given(data=st.data())
def test_no_character_of_any_file_can_change_unseen(data, computed):
    from harness.report.verify import compared

    folder, wanted = computed
    name = data.draw(st.sampled_from(sorted(wanted)))
    text = wanted[name]
    at = data.draw(st.sampled_from([m.start() for m in re.finditer(r"\w", text)]))
    other = "7" if text[at] != "7" else "3"
    changed = text[:at] + other + text[at + 1 :]
    assert compared(name, changed, text, folder)


def test_a_sentence_that_was_added_or_left_out_is_named(folder):
    page = layout.report(folder)
    text = page.read_text()
    page.write_text(f"{text}\nIt was never the memory.\n")
    (found,) = checked(folder).differences
    assert (found.text, found.computed) == ("It was never the memory.", "")
    page.write_text(text.replace("*Isolated.*", "", 1))
    assert any("Isolated" in d.computed for d in checked(folder).differences)


@pytest.mark.parametrize("change", [lambda text: f"{text}\n", lambda text: text.removesuffix("\n")])
def test_a_page_that_only_ends_otherwise_is_named(change, folder):
    page = layout.report(folder)
    page.write_text(change(page.read_text()))
    (found,) = checked(folder).differences
    assert found.place.endswith("(layout)")


def test_a_file_that_is_missing_or_too_many_is_named(folder):
    layout.findings(folder).unlink()
    (layout.figures(folder) / "other.svg").write_text("<svg/>")
    assert places(checked(folder)) == ["findings.json", "figures/other.svg"]


@pytest.mark.parametrize("text", ["[1, 2]", "{", "null", '"HANG"', '{"counts": []}'])
def test_findings_that_are_something_else_are_named(text, folder):
    layout.findings(folder).write_text(text)
    assert "findings.json:1" in places(checked(folder))


def test_evidence_that_was_changed_is_named_and_nothing_is_computed_from_it(folder):
    from harness.store.archive import packed

    run_dir, judge = unpacked(folder), as_recorded(folder)
    files = {str(p.relative_to(run_dir)): p.read_bytes() for p in run_dir.rglob("*") if p.is_file()}
    files["journal.jsonl"] = files["journal.jsonl"].replace(b'"last_good":4', b'"last_good":3', 1)
    layout.archive(folder).write_bytes(packed(files))
    (found,) = verify(folder, judge=judge, slope=slope_through).differences
    assert found.place == "evidence.tar.xz"
    assert found.text == "journal.jsonl:25: it is not as it was written: its checksum differs"


def test_another_verdict_on_the_same_evidence_is_named(folder):
    recorded = as_recorded(folder)

    def judge(case):
        verdict = recorded(case)
        return dataclasses.replace(verdict, phase="forward") if verdict.phase == "backward" else verdict

    found = [d for d in verify(folder, judge=judge, slope=slope_through).differences if "of the journal" in d.place]
    assert len(found) == 2
    assert "backward" in found[0].text
    assert "forward" in found[0].computed


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"excluded_rate": 0.05}, "failure rates of 0.0500"), ({"fit": "steeper"}, "slope")],
)
def test_a_number_that_the_run_itself_got_wrong_is_named(changes, what, make_run, parts, tmp_path):
    canned = parts["threshold"]()
    if "fit" in changes:
        changes = {"fit": dataclasses.replace(canned.boundary.fit, slope=canned.boundary.fit.slope * 1.001)}
    canned.boundary = dataclasses.replace(canned.boundary, **changes)
    bundle(make_run(canned)[1], tmp_path / "wrong", hider=Hider())
    assert [d.text.startswith(what) for d in checked(tmp_path / "wrong").differences] == [True]


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_a_line_by_values_is_computed_as_it_was_drawn(factor, make_run, parts, tmp_path):
    """Through the median of each value, weighed by its size, and not through all points."""
    canned = parts["threshold"]()
    points = [(1, 0.4), (1, 0.9), (1, 0.5), (2, 0.7), (3, 1.4), (4, 1.2), (4, 1.9)]
    fit = fit_scaling("seconds", points)
    assert fit is not None
    fit = dataclasses.replace(fit, slope=fit.slope * factor)
    canned.boundary = dataclasses.replace(canned.boundary, fit=fit)
    bundle(make_run(canned)[1], tmp_path / "drawn", hider=Hider())
    told = [d.text for d in checked(tmp_path / "drawn").differences if d.text.startswith("slope")]
    assert bool(told) == (factor != 1.0)


def test_a_bundle_is_a_run_to_other_commands_and_its_checksums_hold(folder, tmp_path):
    run_dir = find_run(tmp_path, "passed_on")
    assert run_dir != folder
    assert fsck.problems(run_dir) == []
    assert len(read_run(run_dir).records) == 23


def test_names_and_secrets_are_in_no_file_of_a_bundle(make_run, parts, tmp_path):
    canned = parts["threshold"]()
    record, evidence = canned.trials[4]
    record = dataclasses.replace(record, started_at="on ada-host")
    canned.trials[4] = (record, evidence)
    bundle(make_run(canned)[1], tmp_path / "passed_on", hider=Hider(("ada-host",)))
    run_dir = unpacked(tmp_path / "passed_on")
    for path in (*run_dir.rglob("*"), *(tmp_path / "passed_on").rglob("*")):
        assert not path.is_file() or b"ada-host" not in path.read_bytes()


def test_a_trial_without_evidence_is_named_on_the_page_and_counted(make_run, tmp_path):
    run, run_dir = make_run("threshold")
    shutil.rmtree(layout.trial(run_dir, run.records[2].trial.key))
    bundle(run_dir, tmp_path / "passed_on", hider=Hider())
    verified = checked(tmp_path / "passed_on")
    assert verified.unjudged == 1
    assert verified.differences == ()
    assert "that of 3 is missing" in layout.report(tmp_path / "passed_on").read_text()


def test_a_bundle_of_a_run_that_was_cut_off_does_not_say_how_to_continue_what_is_not_there(make_run, tmp_path):
    bundle(make_run("aborted")[1], tmp_path / "passed_on", hider=Hider())
    for path in (tmp_path / "passed_on").glob("*.*"):
        assert b"--resume" not in path.read_bytes()


def test_every_link_on_the_page_leads_somewhere(folder):
    text = layout.report(folder).read_text()
    links = set(re.findall(r"\]\(([^)]+)\)", text))
    assert "evidence.tar.xz" in links
    assert [link for link in links if not (folder / link).is_file()] == []


def test_a_bundle_of_a_bundle_and_its_pages_again_are_the_same_bytes(folder, tmp_path):
    before = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    bundle(unpacked(folder), tmp_path / "again", hider=Hider())
    layout.report(folder).write_text("lost")
    write_pages(folder)
    for other in (folder, tmp_path / "again"):
        assert {path.name: path.read_bytes() for path in other.rglob("*") if path.is_file()} == before


def command(*argv):
    return CliRunner().invoke(main, ["report", *map(str, argv)])


def test_the_command_makes_a_bundle_writes_it_again_and_says_what_is_not_the_same(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr("harness.classify.engine.classify", lambda case: as_recorded(tmp_path / "out")(case))
    done = command(make_run("threshold")[1], "--bundle", tmp_path / "out")
    assert done.exit_code == 0
    assert "with the evidence of 23 of 23 trials" in done.output
    assert command("--verify", tmp_path).exit_code == 0
    layout.report(tmp_path / "out").write_text("nothing")
    done = command("--verify", tmp_path)
    assert done.exit_code == 1
    assert "report.md:1: it says: nothing" in done.output
    assert command(tmp_path / "out").exit_code == 0
    assert command("--verify", tmp_path).exit_code == 0


@pytest.mark.parametrize("argv", [("a", "b"), ("--verify", "nowhere")])
def test_what_cannot_be_verified_or_is_too_much_is_wrong_use_or_no_run(argv):
    assert command(*argv).exit_code in (2, 6)


def test_the_findings_count_what_the_journal_holds(folder):
    findings = json.loads(read_text(layout.findings(folder)))
    assert findings["counts"] == {"HANG": 2, "PASS": 21}
    assert len(findings["trials"]) == 23
    assert is_bundle(folder)
    assert bundles(folder.parent) == [folder]


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["report.md", "notes.txt", "figures/chart.svg", "evidence.tar.xz"])
def test_a_folder_with_other_files_is_no_place_for_a_bundle(name, make_run, tmp_path):
    own = tmp_path / "own" / name
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    done = command(make_run("threshold")[1], "--bundle", tmp_path / "own")
    assert done.exit_code == 6
    words = " ".join(done.output.split())
    assert "is not empty and holds no bundle of nsa-harness: nothing was written there" in words
    assert "Name another place" in words
    assert contents(tmp_path / "own") == {name: b"mine"}


def test_a_bundle_that_replaces_another_leaves_alone_what_was_put_beside_it(folder, make_run):
    mine = folder / "figures" / "mine.svg"
    for path in (mine, folder / "letter.txt"):
        path.write_text("<svg>mine</svg>")
    assert (folder / "figures" / "timeline.svg").is_file()
    bundle(make_run("empty")[1], folder, hider=Hider())
    assert [path.name for path in folder.glob("figures/*")] == ["mine.svg"]
    assert mine.read_text() == (folder / "letter.txt").read_text() == "<svg>mine</svg>"


@pytest.mark.parametrize("name", ["notes.md", "figures/timeline.svg"])
def test_a_file_of_the_user_that_a_bundle_would_replace_is_named_before_anything_is_written(name, make_run, tmp_path):
    folder = tmp_path / "passed_on"
    bundle(make_run("empty")[1], folder, hider=Hider())
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("mine")
    before, run_dir = contents(folder), make_run("threshold")[1]
    (run_dir / "notes.md").write_text("theirs")
    done = command(run_dir, "--bundle", folder)
    assert done.exit_code == 6
    assert f"{name} is not of the bundle in" in " ".join(done.output.split())
    assert contents(folder) == before


def test_an_index_replaces_an_index_and_no_other_page(make_run, tmp_path):
    page = tmp_path / "index.html"
    for _ in range(2):
        assert command("--index", tmp_path).exit_code == 0
    written = tmp_path / "copy.html"
    written.write_text(page.read_text())
    page.write_text("<h1>My site</h1>")
    done = command("--index", tmp_path)
    assert done.exit_code == 6
    assert "it stays as it is" in " ".join(done.output.split())
    assert page.read_text() == "<h1>My site</h1>"
    assert command("--index", tmp_path, "-o", written).exit_code == 0


def test_a_page_to_look_into_a_run_replaces_such_a_page_and_no_other(make_run, tmp_path):
    run_dir, before = make_run("threshold")[1], make_run("empty")[1]
    for argv, name in (((), "viewer.html"), (("--compare", before), f"compared-with-{before.name}.html")):
        page = run_dir / name
        for _ in range(2):
            assert command(run_dir, "--viewer", *argv).exit_code == 0
        page.write_text("<h1>My notes</h1>")
        done = command(run_dir, "--viewer", *argv)
        assert done.exit_code == 6
        assert "was not made by nsa-harness report --viewer: it stays as it is" in " ".join(done.output.split())
        assert page.read_text() == "<h1>My notes</h1>"
        assert command(run_dir, "--viewer", *argv, "-o", tmp_path / "mine.html").exit_code == 0


def cut(content):
    return content[:-10]


def flipped(content, *, at):
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (cut, "its end is missing"),
        (lambda content: flipped(content, at=-30), "it cannot be unpacked"),
        (lambda content: flipped(content, at=-8), "it cannot be unpacked"),
        (lambda content: content + bytes(range(200)), "200 bytes lie behind its end"),
    ],
)
def test_an_archive_is_read_to_its_end_and_by_its_own_checksums(change, what, folder):
    archive = layout.archive(folder)
    archive.write_bytes(change(archive.read_bytes()))
    verified = verify(folder, judge=lambda case: pytest.fail("nothing is judged"), slope=slope_through)
    assert verified.is_damaged
    assert [str(difference).startswith(f"evidence.tar.xz: {what}") for difference in verified.differences] == [True]
    done = CliRunner().invoke(main, ["fsck", str(folder)])
    assert done.exit_code != 0
    assert what in done.output


def test_a_bundle_that_cannot_be_unpacked_hides_no_other_and_its_next_step_works(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("harness.classify.engine.classify", lambda case: as_recorded(tmp_path / "z")(case))
    shutil.copytree(folder, tmp_path / "z")
    layout.archive(folder).write_bytes(cut(layout.archive(folder).read_bytes()))
    layout.report(tmp_path / "z").write_text("nothing")
    done = command("--verify", tmp_path)
    assert done.exit_code == 1
    assert "evidence.tar.xz: its end is missing" in done.output
    assert "report.md:1: it says: nothing" in done.output
    assert "report RUN --bundle DIR" in done.output
    assert "--salvage" not in done.output


@pytest.mark.parametrize("name", ["report.md", "report.html", "findings.json", "figures/timeline.svg"])
def test_a_page_that_is_not_utf_8_fails_its_bundle_and_hides_no_other(name, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("harness.classify.engine.classify", lambda case: as_recorded(tmp_path / "z")(case))
    shutil.copytree(folder, tmp_path / "z")
    page = folder / name
    page.write_bytes(page.read_bytes()[:200] + b"\xff" + page.read_bytes()[200:])
    done = command("--verify", tmp_path)
    assert done.exit_code == 1
    assert f"{name}: it is not UTF-8 from byte 200 on, so nothing in it was compared" in done.output
    assert "z: " in done.output
    assert "all the same again" in done.output
    assert "Pages are written again from their evidence by" in done.output


def test_a_folder_in_the_place_of_a_page_fails_its_bundle_and_no_more(folder):
    layout.report(folder).unlink()
    layout.report(folder).mkdir()
    (difference,) = checked(folder).differences
    assert str(difference).startswith("report.md: it cannot be read, so nothing in it was compared: ")
