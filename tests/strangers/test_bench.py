"""The strangers' bench itself: what it draws for how many GPUs, what it keeps, when it stops, and whom it ends."""

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace

import psutil
import pytest

from bench.strangers import __main__ as bench
from bench.strangers.cases import draw
from bench.strangers.hosts import HOSTS
from bench.strangers.own import end_those_in
from bench.strangers.troubles import SAME_PLACE, TROUBLES


def test_on_two_gpus_every_program_has_two_ranks_and_half_of_the_troubles_are_of_ranks_or_gpus():
    cases = draw(3, 300, gpus=2)
    assert {case.host.ranks for case in cases} == {2}
    assert {case.host.name for case in cases} == {h.name for h in HOSTS.values() if h.ranks == 2 and not h.needs}
    assert not any(case.trouble.alone for case in cases)
    theirs = sum(case.trouble.ranks > 1 or case.trouble.gpu for case in cases)
    assert 0.4 * len(cases) < theirs < 0.8 * len(cases)


def test_on_one_gpu_every_program_is_one_process_and_a_forked_worker_is_not_asked_to_use_the_gpu():
    cases = draw(3, 300, gpus=1)
    assert {case.host.ranks for case in cases} == {1}
    assert any(case.trouble.gpu for case in cases)
    assert not any(case.trouble.gpu and case.host.worker and case.phase == "data" for case in cases)


def test_on_a_cpu_no_trouble_of_gpus_is_drawn_and_every_other_is():
    cases = draw(3, 2000)
    assert {case.trouble.name for case in cases} == {name for name, one in TROUBLES.items() if not one.gpu}


def test_a_trouble_of_all_ranks_comes_to_each_where_all_of_them_get_to_and_one_of_the_first_to_rank_0():
    cases = [case for case in draw(3, 2000) if case.trouble.at != "one"]
    assert {case.trouble.at for case in cases} == {"all", "first"}
    for case in cases:
        assert case.struck == ((0, 1) if case.trouble.at == "all" else (0,))
        assert f"in {case.struck!r}:" in case.source
        assert case.trouble.at == "first" or case.phase in SAME_PLACE


def test_a_trouble_of_all_ranks_is_over_once_it_is_in_each(tmp_path):
    case = next(case for case in draw(3, 2000) if case.trouble.at == "all")
    (tmp_path / "stamps").write_text("begins 5.0 1\nbegins 4.0 0\nis over 6.0 1\n")
    assert bench.stamps(case, tmp_path) == (4.0, False)
    with (tmp_path / "stamps").open("a") as stamps:
        stamps.write("is over 7.0 0\n")
    assert bench.stamps(case, tmp_path) == (4.0, True)
    assert bench.stamps(case, tmp_path, until_s=6.5) == (4.0, False)


@pytest.fixture
def runs(monkeypatch):
    """Every second case is told wrong, and each leaves a file."""

    def run(case, folder, python, **_):
        folder.mkdir(parents=True)
        (folder / "train.py").write_text("")
        score = "wrong" if case.number % 2 else "right"
        return bench.Result(case=case, kind="", cause="", score=score, told_s=None, because="")

    monkeypatch.setattr(bench, "run_case", run)


def test_only_the_folders_of_what_was_not_right_are_kept(runs, tmp_path):
    cases = [replace(case, number=number) for number, case in enumerate(draw(3, 4))]
    bench.run_all(cases, folder=tmp_path, python="", jobs=1, keep=None, only_evidence=True)
    assert {path.name for path in tmp_path.iterdir()} == {"3-1", "3-3"}


def test_two_cases_share_the_cards_of_one_job_and_what_needs_their_figures_has_its_own():
    cards = bench.Cards(4, each=2)
    with cards.taken(alone=True) as own, cards.taken(alone=False) as one, cards.taken(alone=False) as other:
        assert (own, one, other) == ("0,1", "2,3", "2,3")
        late = []
        waits = threading.Thread(target=lambda: late.append(cards.taken(alone=False).__enter__()))
        waits.start()
        assert late == []
    waits.join(5.0)
    assert late == ["0,1"]


def test_no_case_begins_when_it_is_too_late(runs, tmp_path):
    cases = draw(3, 4)
    late = bench.run_all(cases, folder=tmp_path, python="", jobs=1, keep=None, last_s=time.monotonic() - 1.0)
    early = bench.run_all(cases, folder=tmp_path, python="", jobs=1, keep=None, last_s=time.monotonic() + 60.0)
    assert (late, len(early)) == ([], 4)


def test_what_is_left_of_a_program_is_ended_even_if_it_is_stopped_and_nothing_else_is(tmp_path):
    own, others = tmp_path / "own", tmp_path / "others"
    own.mkdir()
    others.mkdir()
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleep, cwd=own) as left, subprocess.Popen(sleep, cwd=others) as other:
        try:
            psutil.Process(left.pid).suspend()
            end_those_in(own)
            assert not psutil.pid_exists(left.pid)
            assert other.poll() is None
        finally:
            left.kill()
            other.kill()


ROLLOUT_MEMORY = next(c for c in draw(5, 300) if c.name == "rollout+memory")
STRUCK_AT = next(n for n, line in enumerate(ROLLOUT_MEMORY.source.splitlines(), 1) if "MemoryError" in line)


@pytest.mark.parametrize(("stamped", "score"), [("", "void"), ("begins 4.0 0\n", "undecided")])
def test_a_run_that_was_cut_off_is_void_where_the_trouble_never_began(tmp_path, monkeypatch, stamped, score):
    def cut_off(*_, **__):
        (tmp_path / "stamps").write_text(stamped)
        return ""

    monkeypatch.setattr(bench, "ended", cut_off)
    assert bench.run_case(ROLLOUT_MEMORY, tmp_path, "python").score == score


@pytest.mark.parametrize(
    ("line", "alone", "score"),
    [(STRUCK_AT, "HANG", "right"), (STRUCK_AT, "CRASH", "wrong"), (STRUCK_AT - 9, "HANG", "wrong")],
)
def test_a_hang_of_what_raised_is_right_where_it_hangs_alone_and_its_line_is_named(
    tmp_path, monkeypatch, line, alone, score
):
    row = {
        "verdict": {"kind": "HANG", "cause": "deadlock", "rank": None, "because": "its main thread has ended"},
        "outcome": {"duration_s": 9.0, "ending": "stopped by us", "cleanup": {"signals": []}},
        "started_at": "2026-01-01T00:00:00+00:00",
    }

    def told(*_, **__):
        (tmp_path / "stamps").write_text("begins 4.0 0\n")
        return json.dumps({"place": f"strike (train.py:{line})", "trials": [row]})

    def plain(case, *_, **__):
        return bench.Result(case=case, kind=alone, cause="", score="", told_s=None, because="")

    monkeypatch.setattr(bench, "ended", told)
    monkeypatch.setattr(bench, "run_plain", plain)
    assert bench.run_case(ROLLOUT_MEMORY, tmp_path, "python").score == score
