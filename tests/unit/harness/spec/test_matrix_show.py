from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.main import main
from harness.core.errors import SpecError
from harness.search.cells import forbidden_cells, planned_cells
from harness.search.constraints import count_cells
from harness.search.strategies import strategy_of
from harness.spec.matrix import load_matrix, parse_matrix
from harness.spec.questions import search_spec

MATRICES = Path(__file__).parents[4] / "matrices"


def run(*args: str):
    return CliRunner().invoke(main, ["matrix", *args])


def show(name: str) -> dict:
    result = run("show", "--json", str(MATRICES / f"{name}.yaml"))
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def calls_of(work) -> int:
    """How many Python functions ``work`` calls: a measure that no slow machine can move."""
    calls = 0

    def count(_frame, event, _arg) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def many_axes(number: int) -> str:
    axes = "".join(
        f"  a{i}: {{type: ordered, range: [1, 4], apply: {{env: A{i}}}, requires: {{a{i - 1}: '>=2'}}}}\n"
        if i % 8
        else f"  a{i}: {{type: ordered, range: [1, 4], apply: {{env: A{i}}}}}\n"
        for i in range(number)
    )
    return f"version: 1\nname: m\nbudget: {{wall: 1h}}\naxes:\n{axes}searches: [{{name: c, kind: minimise}}]\n"


def test_safe_mode_with_its_368640_cells_is_shown_without_listing_them():
    plan = show("safe_mode")
    assert (plan["product"], plan["valid"], plan["valid_is_exact"]) == (368_640, 144_000, True)
    assert len(plan["cells"]) == 4
    assert [s["name"] for s in plan["searches"]] == ["cause", "pairs"]


def plan_everything(matrix) -> None:
    planned_cells(matrix)
    count_cells(matrix.space)
    for entry in matrix.searches:
        strategy_of(search_spec(matrix, entry.name, file="")).estimate()


def test_six_more_switches_mean_64_times_the_cells_and_less_than_three_times_the_work():
    text = (MATRICES / "safe_mode.yaml").read_text()
    switches = "".join(f"  more_{i}: {{type: flag, apply: {{env: MORE_{i}}}}}\n" for i in range(6))
    small, large = (
        parse_matrix(each, name="m.yaml").matrix for each in (text, text.replace("strategy:", switches + "strategy:"))
    )
    assert count_cells(large.space)[0] == 64 * count_cells(small.space)[0]
    assert calls_of(lambda: plan_everything(large)) < 3 * calls_of(lambda: plan_everything(small))


def test_a_thousandfold_of_cells_that_no_rule_ties_together_takes_no_more_work_to_count():
    text = (MATRICES / "safe_mode.yaml").read_text()
    larger = text.replace("values: [128, 256, 512, 1024, 2048], good: 512", "range: [1, 4000], good: 512")
    larger = larger.replace("seq_len: 2048", "seq_len: 4000")
    small, large = (parse_matrix(each, name="m.yaml").matrix.space for each in (text, larger))
    assert count_cells(large)[0] == 800 * count_cells(small)[0]
    # A collection of garbage may add a call or two of its own.
    assert calls_of(lambda: count_cells(large)) == pytest.approx(calls_of(lambda: count_cells(small)), rel=0.02)


def test_thirty_two_axes_with_more_cells_than_atoms_in_a_gram_are_counted_exactly_in_bounded_work(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(many_axes(32))
    matrix = load_matrix(path).matrix
    plan = json.loads(run("show", "--json", str(path)).output)
    # Eight axes in a chain: once one is at its good value 1, so are all behind it.
    chain = sum(3**i for i in range(8)) + 3**8
    assert plan["product"] == 4**32
    assert plan["valid"] == chain**4
    assert len(planned_cells(matrix)) == 0


def test_a_full_product_that_nobody_would_wait_for_is_refused_without_listing_it():
    text = (MATRICES / "safe_mode.yaml").read_text().replace("strategy: list", "strategy: full")
    matrix = parse_matrix(text, name="m.yaml").matrix

    def refuse() -> None:
        with pytest.raises(SpecError, match="strategy full means 144,000 cells, more than 10,000"):
            planned_cells(matrix)

    assert calls_of(refuse) < 144_000


def test_a_small_full_product_has_every_allowed_cell_once():
    text = (MATRICES / "ddp_checkpoint.yaml").read_text().replace("strategy: pairwise", "strategy: full")
    matrix = parse_matrix(text, name="m.yaml").matrix
    cells = planned_cells(matrix)
    assert len(cells) == len(set(cells)) == 180
    assert all(matrix.space.broken(cell) is None for cell in cells)


def test_one_factor_changes_one_axis_at_a_time_and_says_what_a_rule_left_out():
    text = (MATRICES / "safe_mode.yaml").read_text().replace("strategy: list", "strategy: one-factor")
    matrix = parse_matrix(text, name="m.yaml").matrix
    planned = planned_cells(matrix)
    # The good corner, one cell for each other value that no rule forbids, and three of the four included ones.
    assert len(planned) == 1 + sum(len(f.axis.values) - 1 for f in matrix.space.factors) - 5 + 3
    assert {str(rule) for _, rule in forbidden_cells(matrix)} == {str(rule) for rule in matrix.space.rules}


def test_the_text_names_what_is_expected_and_what_is_left_out():
    result = run("show", str(MATRICES / "ddp_checkpoint.yaml"))
    assert "216 combinations, 180 of them allowed by 2 rules" in result.output
    assert "precision=fp16 requires n_layers<=6 (fp16 overflows in the deeper models)" in result.output
    assert "expected CRASH (ready-twice)" in result.output
    assert "search why-ready-twice (minimise): about" in result.output


@pytest.mark.parametrize(("until", "shown"), [("2100-01-01", "expected CRASH"), ("2020-01-01", "")])
def test_an_expectation_that_holds_no_longer_is_not_shown(until, shown, tmp_path):
    file = tmp_path / "m.yaml"
    expect = f"expect:\n  - {{when: {{n: 2}}, verdict: crash, until: {until}}}\n"
    axes = "axes:\n  n: {type: ordered, values: [1, 2], apply: {env: N}}\nstrategy: full\n"
    file.write_text(f"version: 1\nname: m\n{axes}{expect}budget: {{wall: 1m}}\n")
    (line,) = [line for line in run("show", str(file)).output.splitlines() if line.strip().startswith("n=2")]
    assert line.strip().removeprefix("n=2").strip() == shown


def test_a_bisection_along_words_is_planned_in_the_order_in_which_they_stand(tmp_path):
    file = tmp_path / "m.yaml"
    axes = "axes:\n  mode: {type: categorical, values: [x, y, z], apply: {env: MODE}}\n"
    file.write_text(f"version: 1\nname: m\n{axes}searches: [{{name: c, kind: bisect, axis: mode}}]\n")
    assert "search c (bisect): about" in run("show", str(file)).output


def test_lint_says_where_and_ends_with_one(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text("version: 1\nname: m\naxes:\n  share_kv: {type: flag}\n")
    result = run("lint", str(path))
    assert result.exit_code == 1
    assert result.output.startswith(f"{path}:1: warning: no budget: wall: or gpu_seconds: only the limit of a CI job")


def test_lint_ends_with_nought_when_there_is_nothing_to_remark():
    result = run("lint", str(MATRICES / "safe_mode.yaml"), str(MATRICES / "ddp_checkpoint.yaml"))
    assert (result.exit_code, result.output) == (0, "")


def test_an_error_in_the_file_ends_with_two_and_its_line(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text("version: 1\nname: m\naxes:\n  share_kv: {type: flg}\n")
    result = run("show", str(path))
    assert result.exit_code == 2
    assert f"{path}:4: axes.share_kv.type = 'flg'" in result.output


def test_the_schema_is_json():
    assert json.loads(run("schema").output)["title"] == "MatrixKeys"
