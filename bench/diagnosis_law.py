"""The law of the loop over tokens that was once called a hang: part ``law`` of diagnosis_gpu.py.

Attention as a loop over tokens (legacy-sequential), in the shape of the original reports, one step per trial. Five
small sizes, after a trial that warms the machine up, give the law seconds per step = a + c x layers x tokens. Three
larger ones show how far it holds: the loop builds more autograd nodes per token as more blocks can be selected, so the
time is fitted against the nodes as well. Then 12 layers and 2048 tokens, predicted from all of them, with the reports'
limit of 60 seconds: the verdict must be SLOW, and say what bounds it and how long a step would have taken.
"""

from __future__ import annotations

import json
import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.cli.wiring import parts
from harness.conduct import conduct
from harness.core.codec import to_json
from harness.core.evidence import GRAPH_NODES
from harness.core.fit import fit_line, times_beyond
from harness.core.point import Point
from harness.core.spec import Limits
from harness.core.trial import Prediction, Trial
from harness.core.verdict import Case
from harness.plan.predict import budget, estimate
from harness.settings import Settings
from harness.store.cases import write_case

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SHAPE = {
    "model.decoder": "tiny",
    "model.dim": 768,
    "model.n_heads": 12,
    "model.n_kv_groups": 2,
    "model.d_k": 64,
    "model.d_v": 64,
    "model.l": 32,
    "model.d": 16,
    "model.l_slc": 64,
    "model.n": 16,
    "model.w": 512,
    "model.phi": "mean",
    "model.attention": "legacy-sequential",
    "train.data": "synthetic",
    "train.precision": "bf16",
    "train.precision_mode": "pure",
    "train.device": "cuda",
    "train.lr": 2e-4,
    "train.steps": 1,
}
TINY = {**SHAPE, "model.dim": 64, "model.n_heads": 4, "model.d_k": 16, "model.d_v": 16}
TINY |= {"train.device": "cpu", "train.precision": "fp32", "train.precision_mode": "autocast"}

SMALL = ((2, 128), (2, 256), (3, 256), (4, 256), (6, 256))
"""Layers and tokens of the straight law."""
LARGER = ((6, 512), (12, 512), (2, 2048))
"""About 14, 28 and 32 s a step on an H200; the last goes first when time is short."""
WANTED, LIMIT_S = (12, 2048), 60.0
SMOKE_SMALL = ((1, 16), (1, 32), (2, 32), (2, 48), (2, 64))
SMOKE_LARGER = ((2, 128),)
SMOKE_WANTED, SMOKE_LIMIT_S = (4, 512), 8.0
RESERVE_S = 76.0
"""What the very case needs at the end of the budget, and a trial before and after its step."""


@dataclass(frozen=True)
class Size:
    """One trial that ended its step."""

    layers: int
    tokens: int
    step_s: float
    nodes: float

    @property
    def product(self) -> float:
        """Layers x tokens."""
        return float(self.layers * self.tokens)


def law(out: Path, keep: Path, *, say: Callable[[str], None], left_s: Callable[[], float], gpu: str) -> bool:
    """Whether the very case was told as it must be; without a ``gpu`` a smoke run, which only shows that it runs."""
    smoke = not gpu
    settings = Settings.read()
    if gpu:
        settings = replace(settings, child_env=(*settings.child_env, ("CUDA_VISIBLE_DEVICES", gpu)))
    sizes: list[Size] = []
    rows: list[dict[str, object]] = []
    small, larger = (SMOKE_SMALL, SMOKE_LARGER) if smoke else (SMALL, LARGER)
    wanted, limit_s = (SMOKE_WANTED, SMOKE_LIMIT_S) if smoke else (WANTED, LIMIT_S)
    with parts(settings, target="nsa", executor="local") as tools:

        def one(layers: int, tokens: int, limit_s: float, prediction: Prediction | None = None):
            done = trial(tools, keep, layers, tokens, limit_s=limit_s, prediction=prediction, smoke=smoke)
            rows.append(row(done, layers, tokens))
            steps = done.evidence.measurement.step_s
            say(f"law: {layers} layers x {tokens} tokens: {done.verdict}, steps {[round(s, 2) for s in steps]} s")
            return done

        trial(tools, keep, *small[0], limit_s=120.0, prediction=None, smoke=smoke, name="warm-up")
        for layers, tokens in (*small, *larger):
            if not smoke and left_s() < RESERVE_S + expected_s(sizes, layers * tokens):
                say(f"law: no time is left for {layers} x {tokens}")
            else:
                seen = one(layers, tokens, 120.0).evidence.measurement
                nodes = dict(seen.facts).get(GRAPH_NODES, 0.0)
                sizes += [Size(layers, tokens, step_s, nodes) for step_s in seen.step_s[-1:]]
        few = [s for s in sizes if (s.layers, s.tokens) in small]
        straight = fit_line(products(few))
        for line in (*straight_law(few, sizes), *node_law(sizes)):
            say(f"law: {line}")
        done = one(*wanted, limit_s, prediction_for(sizes, wanted[0] * wanted[1]))
    facts = dict(done.evidence.measurement.facts)
    nodes = facts.get(GRAPH_NODES, 0.0) * wanted[0] / facts.get("forward_blocks", wanted[0])  # also of those not seen
    say(f"law: {wanted[0]} layers x {wanted[1]} tokens, limit {limit_s:.0f} s: {done.verdict} by {done.verdict.rule}")
    for line in predictions(few, sizes, product=float(wanted[0] * wanted[1]), nodes=nodes):
        say(f"law: {line}")
    print(textwrap.indent(textwrap.fill(done.verdict.because, 70), " " * 10), flush=True)
    (out / "law.json").write_text(json.dumps({"fit": to_json(straight), "trials": rows}, indent=1))
    told = (done.verdict.kind, done.verdict.cause) == ("SLOW", "host-bound")
    right = straight is not None and (smoke or (told and "nodes per token" in done.verdict.because))
    say(f"law: {'as it must be' if right else 'WRONG: must be SLOW (host-bound), with nodes per token and a law'}")
    return right


def expected_s(sizes: Sequence[Size], product: float) -> float:
    """Seconds that a step may take: half more than in proportion to the largest so far, as the law is known to bend."""
    largest = max(sizes, key=lambda s: s.product, default=None)
    return 1.5 * largest.step_s * product / largest.product if largest else 10.0


def straight_law(small: Sequence[Size], sizes: Sequence[Size]) -> list[str]:
    """The line through the small sizes, and how far every larger one lies from it."""
    line = fit_line([(s.product, s.step_s) for s in small])
    error = line.slope_error() if line else None
    if line is None or error is None:
        return ["fewer than three small sizes: no law"]
    low, high = 1e3 * (line.slope - error), 1e3 * (line.slope + error)
    said = [
        f"{len(small)} small sizes: seconds per step = {line.intercept:.2f} + {1e3 * line.slope:.3f} ms x layers x "
        f"tokens (95 %: {low:.3f} to {high:.3f} ms), R2 {line.r_squared:.4f}"
    ]
    usual = small[-1].nodes / small[-1].product
    for s in (s for s in sizes if s not in small):
        expected, most = line.at(s.product), line.upper(s.product)
        where = "within" if most is not None and s.step_s <= most else "above"
        said.append(
            f"{s.layers} x {s.tokens}: {s.step_s:.2f} s against {expected:.2f} s of that line "
            f"({100 * (s.step_s / expected - 1):+.0f} %, {where} its 95 %); {s.nodes / s.product:.0f} autograd "
            f"nodes per token and layer, {usual:.0f} at the last small size"
        )
    return said


def node_law(sizes: Sequence[Size]) -> list[str]:
    """All sizes against layers x tokens, and against the autograd nodes of their forward: which line they lie on."""
    said: list[str] = []
    for name, points in (("layers x tokens", products(sizes)), ("autograd nodes of the forward", by_nodes(sizes))):
        line = fit_line(points)
        error = line.slope_error() if line else None
        if line is None or error is None:
            return ["too few sizes counted their nodes"]
        low, high = 1e6 * (line.slope - error), 1e6 * (line.slope + error)
        said.append(
            f"all {line.n} sizes: seconds per step = {line.intercept:.2f} + {1e6 * line.slope:.2f} us x {name} "
            f"(95 %: {low:.2f} to {high:.2f} us), R2 {line.r_squared:.4f}, scatter {line.scatter:.2f} s"
        )
    return said


def predictions(small: Sequence[Size], sizes: Sequence[Size], *, product: float, nodes: float) -> list[str]:
    """What every law says of the very case, with its 95 % upper limit and how far beyond its sizes that is."""
    said: list[str] = []
    for name, points, x in (
        (f"layers x tokens, {len(small)} small sizes", products(small), product),
        (f"layers x tokens, all {len(sizes)} sizes", products(sizes), product),
        (f"autograd nodes, {len(small)} small sizes", by_nodes(small), nodes),
        (f"autograd nodes, all {len(sizes)} sizes", by_nodes(sizes), nodes),
    ):
        line = fit_line(points)
        if line is not None and (high := line.upper(x)) is not None and x:
            away = times_beyond(x, [seen for seen, _ in points])
            said.append(
                f"the very case by {name}: {line.at(x):.0f} s, at most {high:.0f} s (95 %), {away:.0f} times beyond"
            )
    return said


def products(sizes: Sequence[Size]) -> list[tuple[float, float]]:
    return [(s.product, s.step_s) for s in sizes]


def by_nodes(sizes: Sequence[Size]) -> list[tuple[float, float]]:
    return [(s.nodes, s.step_s) for s in sizes if s.nodes]


def prediction_for(sizes: Sequence[Size], product: float) -> Prediction | None:
    """What the harness is told of the very case, from every size that ended its step."""
    if len(sizes) < 2:
        return None
    largest = max(s.product for s in sizes)
    expected, high = estimate(products(sizes), at=product)
    counted = max((s for s in sizes if s.nodes), key=lambda s: s.nodes, default=None)
    return Prediction(
        total_s=expected,
        total_high_s=high,
        silence_s=expected,
        silence_high_s=high,
        basis=f"{len(sizes)} sizes up to {largest:.0f} layers x tokens",
        beyond=times_beyond(product, [largest]),
        node_s=counted.step_s / counted.nodes if counted else None,
    )


def trial(tools, keep, layers, tokens, *, limit_s, prediction, smoke, name=""):
    """One trial of the loop."""
    size = {"model.n_layers": layers, "train.seq_len": tokens}
    asked = Trial(
        target="nsa",
        point=Point.of({"n_layers": layers, "seq_len": tokens}),
        repeat=0,
        role="search",
        config=tools.target.config({**(TINY if smoke else SHAPE), **size}),
        seed=0,
        code="bench",
        machine="bench",
        budget=budget(Limits(startup_s=60.0, stall_s=limit_s, total_s=limit_s), prediction),
        prediction=prediction,
    )
    folder = keep / f"law-{name or f'{layers}x{tokens}'}"
    done = conduct(asked, trial_dir=folder, parts=tools)
    write_case(folder, Case(trial=asked, outcome=done.outcome, evidence=done.evidence), done.verdict)
    return done


def row(done, layers: int, tokens: int) -> dict[str, object]:
    return {
        "layers": layers,
        "tokens": tokens,
        "verdict": to_json(done.verdict),
        "seconds": done.outcome.duration_s,
        "step_s": list(done.evidence.measurement.step_s),
        "facts": dict(done.evidence.measurement.facts),
    }
