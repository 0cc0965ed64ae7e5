from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from harness.core.errors import SpecError
from harness.core.matrix import MatrixStrategy
from harness.core.point import AxisType, Point
from harness.core.spec import Limits
from harness.core.verdict import Kind
from harness.spec.matrix import load_matrix, parse_matrix
from harness.spec.matrix_keys import MatrixKeys
from harness.spec.matrix_lint import lint
from harness.spec.questions import search_spec

MATRICES = Path(__file__).parents[4] / "matrices"
FILES = ("backward_layers", "ddp_checkpoint", "safe_mode")
TODAY = dt.date(2026, 11, 21)
HEAD = """\
version: 1
name: m
axes:
  n_layers: {type: ordered, range: [1, 4]}
  sdpa: {type: categorical, values: [any, no-flash, flash-only]}
  share_kv: {type: flag}
"""


def parse(text: str):
    return parse_matrix(text, name="m.yaml").matrix


def remarks(text: str) -> list[str]:
    return [str(remark) for remark in lint(parse_matrix(text, name="m.yaml"), today=TODAY)]


@pytest.mark.parametrize("name", FILES)
def test_the_matrices_that_come_with_the_harness_have_no_errors(name):
    file = load_matrix(MATRICES / f"{name}.yaml")
    assert [str(remark) for remark in lint(file, today=TODAY) if remark.is_error] == []


def test_axes_take_the_trainers_settings_of_the_same_name_and_sensible_ends():
    n_layers, sdpa, share_kv = parse(HEAD).space.factors
    assert (n_layers.axis.path, n_layers.axis.values, n_layers.good, n_layers.bad) == (
        "model.n_layers",
        (1, 2, 3, 4),
        1,
        4,
    )
    assert (sdpa.axis.type, sdpa.good, sdpa.bad) == (AxisType.CATEGORICAL, "any", "flash-only")
    assert (share_kv.axis.values, share_kv.good, share_kv.bad) == ((False, True), False, True)
    assert share_kv.bundles[1].config == (("model.share_kv", True),)


def test_a_cell_becomes_settings_arguments_and_environment_in_the_order_of_the_file():
    matrix = parse("""\
version: 1
name: m
target: command
command: [train]
env: {A: yes, B: 1}
axes:
  layers: {type: ordered, values: [2, 4], apply: {arg: --layers}}
  fast: {type: flag, good: 1, bad: 0, apply: {env: FAST}}
  mode: {type: categorical, values: [one, 2], apply: {map: {one: {args: [--one]}, 2: {env: {TWO: true}}}}}
""")
    bundle = matrix.bundle(matrix.space.bad)
    assert bundle.args == ("--layers", "4")
    assert bundle.env == (("A", "yes"), ("B", "1"), ("FAST", "0"), ("TWO", "1"))
    assert matrix.bundle(matrix.space.good).args == ("--layers", "2", "--one")


def test_an_argument_holds_its_value_where_it_says_so():
    matrix = parse("""\
version: 1
name: m
target: command
command: [train]
axes:
  x: {type: ordered, values: [1, 2], apply: {arg: "--x={value}"}}
""")
    assert matrix.bundle(matrix.space.bad).args == ("--x=2",)


FOREIGN = "version: 1\nname: m\ntarget: command\ncommand: [train, '{amp:--amp}', --n, '{n}']\naxes:\n"


@pytest.mark.parametrize(
    ("axes", "cure"),
    [
        ("  n: {type: ordered, values: [1, 2]}\n", "amp: {type: flag}"),
        ("  amp: {type: flag}\n", "n: {type: categorical, values: [...]}"),
    ],
)
def test_what_the_command_lacks_is_named_with_a_cure_that_can_be_read(axes, cure):
    with pytest.raises(SpecError) as error:
        parse(FOREIGN + axes)
    assert f"add it to axes ({cure})" in str(error.value)
    assert parse(f"{FOREIGN}{axes}  {cure.replace('...', 'a, b')}\n").strategy is MatrixStrategy.FULL


@pytest.mark.parametrize("more", ["include:\n  - {n: 2}\n", "searches:\n  - {name: one, kind: minimise}\n"])
def test_a_file_that_says_what_is_run_is_that_list(more):
    axes = "  n: {type: ordered, values: [1, 2]}\n  amp: {type: flag}\n"
    assert parse(FOREIGN + axes + more).strategy is MatrixStrategy.LIST


def test_selectors_mean_the_values_they_allow():
    matrix = parse(HEAD + "exclude:\n  - {n_layers: '>=3', sdpa: [any, no-flash], share_kv: 1}\n")
    (rule,) = matrix.space.rules
    assert rule.when.terms == (("n_layers", (3, 4)), ("sdpa", ("any", "no-flash")), ("share_kv", (True,)))
    assert str(rule) == "n_layers>=3, sdpa=any|no-flash, share_kv=1 is excluded"
    assert matrix.space.broken(matrix.space.cell({"n_layers": 3, "share_kv": True})) is rule
    assert matrix.space.broken(matrix.space.cell({"n_layers": 2, "share_kv": True})) is None


def test_requires_holds_wherever_the_axis_has_left_its_good_value():
    matrix = parse(HEAD.replace("{type: flag}", "{type: flag, requires: {sdpa: any}}"))
    cell = matrix.space.cell({"share_kv": True, "sdpa": "no-flash"})
    assert str(matrix.space.broken(cell)) == "share_kv!=false requires sdpa=any"
    assert matrix.space.broken(matrix.space.cell({"sdpa": "no-flash"})) is None


def test_included_cells_are_whole_the_rest_at_good():
    matrix = parse(HEAD + "include:\n  - {}\n  - {n_layers: 3}\n")
    assert matrix.include == (matrix.space.good, Point.of({"n_layers": 3, "sdpa": "any", "share_kv": False}))


def test_of_the_limits_that_hold_in_a_cell_the_last_wins_one_by_one():
    matrix = parse(
        HEAD + "limits: {stall: 90s, total: 1.5m}\nlimits_when:\n"
        "  - {when: {n_layers: '<=2'}, stall: 30}\n  - {when: {n_layers: 1}, total: 500ms}\n"
    )
    at = {n: matrix.limits_at(matrix.space.cell({"n_layers": n})) for n in (1, 2, 3)}
    assert at[1] == Limits(stall_s=30.0, total_s=0.5)
    assert at[2] == Limits(stall_s=30.0, total_s=90.0)
    assert at[3] == Limits(stall_s=90.0, total_s=90.0)


def test_gpus_and_expectations_of_a_cell_are_those_of_the_last_row_that_speaks_of_it():
    matrix = load_matrix(MATRICES / "ddp_checkpoint.yaml").matrix
    ddp = matrix.space.cell({"parallel": "ddp", "ckpt": "reentrant"})
    assert (matrix.gpus_at(matrix.space.good), matrix.gpus_at(ddp)) == (1, 2)
    expected = matrix.expected(ddp)
    assert expected is not None
    assert (expected.kind, expected.signature, expected.until) == (Kind.CRASH, "ready-twice", dt.date(2027, 8, 23))
    assert matrix.expected(matrix.space.cell({"parallel": "ddp"})) is None


def test_repeats_budget_and_certificate_become_effort():
    matrix = load_matrix(MATRICES / "backward_layers.yaml").matrix
    assert matrix.strategy is MatrixStrategy.ONE_FACTOR
    assert (matrix.effort.certify, matrix.effort.max_seconds, matrix.effort.max_trials) == (29, 1800.0, 120)
    assert (matrix.passes, matrix.infra_retries) == (1, 2)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (HEAD + "strategi: full\n", 7, "unknown key 'strategi'; did you mean 'strategy'"),
        (
            HEAD + "searches:\n  - {name: a, kind: minimise, axs: b}\n",
            8,
            "unknown key 'searches.0.axs'; did you mean 'axis'",
        ),
        (HEAD + "  extra: {type: flag, aply: {env: X}}\n", 7, "unknown key 'axes.extra.aply'; did you mean 'apply'"),
        (HEAD + "  extra: {type: ordred, values: [1]}\n", 7, "'ordered', 'categorical' or 'flag'"),
        (HEAD + "  extra: {type: flag, apply: {map: {1: {evn: {A: 1}}}}}\n", 7, "did you mean 'env'"),
        (HEAD + "  tied_hed: {type: flag}\n", 7, "did you mean 'model.tied_head'"),
        (HEAD + "  d: {type: ordered, values: [8, 4]}\n", 7, "must ascend"),
        (HEAD + "  d: {type: ordered, values: [4, 4]}\n", 7, "lists a value twice"),
        (HEAD + "  d: {type: ordered, values: [4, high]}\n", 7, "needs numbers, got 'high'"),
        (HEAD + "  d: {type: ordered}\n", 7, "either values: [..] or range"),
        (HEAD + "  d: {type: ordered, range: [9, 3]}\n", 7, "must ascend"),
        (HEAD + "  d: {type: flag, values: [1, 2]}\n", 7, "is a flag"),
        (HEAD + "  d: {type: ordered, values: [4, 8], good: 5}\n", 7, "5 is not a value of axis 'd'"),
        (HEAD + "  d: {type: ordered, values: [1, 8], bad: true}\n", 7, "True is not a value of axis 'd'"),
        (HEAD + "  phi: {type: categorical, values: [mlp, meen]}\n", 7, "did you mean 'mean'"),
        (
            HEAD + "  d: {type: flag, apply: {env: A, arg: --a}}\n",
            7,
            "exactly one of arg, env, config, python, commit, map",
        ),
        (
            "version: 1\nname: m\ntarget: command\ncommand: [python, x.py]\naxes:\n"
            "  py: {type: categorical, values: [a, b], apply: {python: '/{value}/bin/python'}}\n",
            6,
            "axis 'py' has no place in the command; write {python}",
        ),
        (
            "version: 1\nname: m\ntarget: command\ncommand: [python, x.py]\naxes:\n"
            "  py: {type: flag, apply: {map: {0: {}, 1: {python: /b/bin/python}}}}\n",
            6,
            "axis 'py' has no place in the command; write {python}",
        ),
        (
            "version: 1\nname: m\ntarget: command\ncommand: [A=1, python, x.py]\naxes:\n"
            "  a: {type: flag, apply: {env: A}}\n",
            6,
            "axis 'a' sets $A, which the command sets itself and so hides",
        ),
        (
            HEAD + "  t: {type: categorical, values: [secretA1, secretB2], apply: {env: HF_TOKEN}}\n",
            7,
            "axis 't' lists secrets, which are written down nowhere, so its cells could not be told apart; list names",
        ),
        (HEAD + "  d: {type: flag, apply: {arg: --a}}\n", 7, "takes settings, not arguments"),
        (HEAD + "  d: {type: flag, apply: {map: {1: {}}}}\n", 7, "map says nothing for false"),
        (
            HEAD + "  x: {type: ordered, values: [1, 2], apply: {config: model.n_layers}}\n",
            7,
            "both set model.n_layers",
        ),
        (HEAD + "base: {model.n_layers: 3}\n", 7, "is also set by axis 'n_layers'"),
        (HEAD + "base: {model.dmi: 3}\n", 7, "did you mean 'model.dim'"),
        (HEAD + "include:\n  - {n_layer: 1}\n", 8, "unknown axis 'n_layer'; did you mean 'n_layers'"),
        (HEAD + "include:\n  - {sdpa: no_flash}\n", 8, "did you mean 'no-flash'"),
        (
            HEAD + "exclude:\n  - {n_layers: 3}\ninclude:\n  - {n_layers: 3}\n",
            10,
            "breaks a rule: n_layers=3 is excluded",
        ),
        (
            HEAD + "exclude:\n  - {n_layers: 4, share_kv: 1}\nsearches:\n  - {name: s, kind: minimise}\n",
            10,
            "is excluded; hold an axis in this search, e.g. fixed: {share_kv: false}",
        ),
        (HEAD + "exclude: [{}]\n", 7, "would hold everywhere"),
        (HEAD + "exclude:\n  - {n_layers: []}\n", 8, "an empty list selects nothing"),
        (HEAD + "exclude:\n  - {n_layers: '>=9'}\n", 8, "no value of axis 'n_layers' is >=9"),
        (HEAD + "exclude:\n  - {n_layers: '>=x'}\n", 8, "'x' is not a number"),
        (HEAD + "exclude:\n  - {sdpa: '>=3'}\n", 8, "is categorical"),
        (HEAD + "limits: {stall: soon}\n", 7, "'soon' is not a duration"),
        (HEAD + "limits: {stall: 0}\n", 7, "'0' is not a duration"),
        (HEAD + "limits:\n  stall: [3]\n", 8, "should be seconds, or a duration"),
        (HEAD + "success: {forbid: ['(']}\n", 7, "is not a regular expression"),
        (HEAD + "signatures: {a: {verdict: hung}}\n", 7, "did you mean 'hang'"),
        (HEAD + "expect:\n  - {when: {n_layers: 3}, verdict: hang, signature: x}\n", 8, "unknown signature 'x'"),
        (
            HEAD + "signatures: {oops: {verdict: oom}}\nexpect:\n"
            "  - {when: {n_layers: 3}, verdict: hang, signature: oops}\n",
            9,
            "is of a OOM, but HANG is expected",
        ),
        (
            HEAD + "expect:\n  - {when: {n_layers: 3}, verdict: oom, since: 2026-01-02, until: 2026-01-01}\n",
            8,
            "before since",
        ),
        (HEAD + "expect:\n  - {when: {n_layers: 3}, verdict: oom, since: soon}\n", 8, "valid date"),
        (HEAD + "searches:\n  - {name: a, kind: bisect}\n", 8, "needs axis"),
        (HEAD + "searches:\n  - {name: a, kind: bisect, axis: n_layer}\n", 8, "did you mean 'n_layers'"),
        (HEAD + "searches:\n  - {name: a, kind: bisect, axis: n_layers, fixed: {n_layers: 3}}\n", 8, "also held fixed"),
        (HEAD + "searches:\n  - {name: a, kind: minimise, fixed: {sdpa: flashonly}}\n", 8, "did you mean 'flash-only'"),
        (HEAD + "searches:\n  - {name: a, kind: explore}\n  - {name: a, kind: explore}\n", 9, "there twice"),
        (HEAD + "exclude:\n  - {n_layers: 4}\nsearches:\n  - {name: a, kind: minimise}\n", 10, "the bad corner"),
        (HEAD + "strategy: pairwise\nstrength: 4\n", 8, "more than the 3 axes"),
        (HEAD + "target: command\n", 7, "needs command"),
        (HEAD + "command: [x]\n", 7, "only it has one"),
        (HEAD + "name: n\n", 7, "duplicate key"),
        (HEAD.replace("version: 1", "version: 2"), 1, "1"),
        (HEAD.replace("name: m", "name: a@b"), 2, "pattern"),
        ("version: 1\nname: m\n", 1, "'axes' is missing"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(text, line, message):
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"m.yaml:{line}: ")
    assert message in str(caught.value)


def test_yes_and_no_are_words_and_true_belongs_to_flags():
    with pytest.raises(SpecError, match="True is no number or word"):
        parse(HEAD + "  gate: {type: categorical, values: [uniform, true]}\n")
    text = "version: 1\nname: m\ntarget: command\ncommand: [x]\naxes:\n"
    matrix = parse(text + "  a: {type: categorical, values: [no, on], apply: {env: A}}\n")
    assert matrix.space.factors[0].axis.values == ("no", "on")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"nowhere\.yaml: cannot be read"):
        load_matrix(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("expect:\n  - {when: {n_layers: 3}, verdict: hang, until: 2026-11-20}\n", "held until 2026-11-20"),
        ("expect:\n  - {when: {n_layers: 3}, verdict: hang}\n", "expected HANG without until:"),
        ("expect:\n  - {when: {n_layers: 3}, verdict: pass, since: 2026-11-22}\n", "lies in the future"),
        (
            "limits: {total: 60s}\nexpect:\n  - {when: {n_layers: 3}, verdict: pass, seconds: 233}\n",
            "a total limit of 60 s cannot tell slow from hung: a cell with n_layers=3 is known to pass in 233 s; "
            "allow 699 s",
        ),
        (
            "limits_when: [{when: {share_kv: 1}, total: 300s}]\n"
            "expect:\n  - {when: {n_layers: 3}, verdict: pass, seconds: 233}\n",
            "a total limit of 300 s cannot tell slow from hung",
        ),
        ("limits: {stall: 60s, total: 50s}\n", "before stall 60 s can say that it hangs"),
        ("signatures: {a: {verdict: oom}}\n", "signature 'a' is used nowhere"),
        ("searches:\n  - {name: s, kind: minimise}\n", "the first failure of any kind"),
        ("", "no budget"),
        ("exclude: [{n_layers: 4}]\n", "the bad values together break a rule: n_layers=4 is excluded"),
        ("include: [{}]\nbase: {model.n_heads: 3}\n", "error: the good corner cannot run: model.n_heads = 3"),
    ],
)
def test_what_looks_wrong_is_remarked(text, remark):
    assert any(remark in line for line in remarks(HEAD + text))


@pytest.mark.parametrize(
    ("axis", "remark"),
    [
        ("{type: ordered, values: [4], apply: {env: A}}", "has one value; hold it in base"),
        ("{type: flag, apply: {map: {0: {env: {A: 1}}, 1: {env: {A: 1}}}}}", "two values of axis 'x' do the same"),
        (
            "{type: ordered, values: [4, 8], apply: {env: A}}\nsearches: [{name: s, kind: bisect, axis: x}]",
            "searched for a threshold, but has two values only",
        ),
    ],
)
def test_an_axis_that_looks_wrong_is_remarked_at_its_line(axis, remark):
    assert any(line.startswith("m.yaml:7: ") and remark in line for line in remarks(f"{HEAD}  x: {axis}\n"))


def test_values_that_only_a_planted_fault_or_a_limit_tells_apart_do_not_do_the_same():
    axis = (
        "  x: {type: categorical, values: [bound, late], good: bound, bad: late, apply: {map: {bound: {}, late: {}}}}\n"
    )
    alike = "two values of axis 'x' do the same"
    assert any(alike in line for line in remarks(HEAD + axis))
    assert not any(alike in line for line in remarks(f"{HEAD}{axis}fault: late-binding@x==late\n"))
    assert not any(alike in line for line in remarks(f"{HEAD}{axis}limits_when: [{{when: {{x: late}}, total: 30m}}]\n"))


def test_a_file_with_nothing_to_remark_has_no_remarks():
    text = HEAD + (
        "budget: {wall: 1h}\nlimits: {stall: 60s, total: 700s}\nsignatures: {h: {verdict: hang}}\n"
        "expect:\n  - {when: {n_layers: 3}, verdict: pass, seconds: 233}\n"
        "searches:\n  - {name: s, kind: bisect, axis: n_layers, signature: h}\n"
    )
    assert remarks(text) == []


def test_the_schema_for_editors_describes_every_key_of_a_matrix():
    schema = MatrixKeys.model_json_schema()
    assert {"axes", "exclude", "constraints", "searches", "expect", "signatures", "budget"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False
    assert "requires" in schema["$defs"]["AxisKeys"]["properties"]


def test_a_search_follows_words_in_the_order_in_which_they_stand():
    matrix = parse(HEAD + "searches:\n  - {name: a, kind: bisect, axis: sdpa}\n")
    factor = search_spec(matrix, "a", file="m.yaml").matrix.space.factor("sdpa")

    assert factor.axis.type is AxisType.ORDERED
    assert factor.axis.values == matrix.space.factor("sdpa").axis.values
