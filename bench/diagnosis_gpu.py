"""The diagnosis on real GPUs: known faults on one and two of them, and the slow loop that was once called a hang.

    python bench/diagnosis_gpu.py OUT --budget-s 280               # two GPUs: doctor, then all specimens
    python bench/diagnosis_gpu.py OUT --part bullet --budget-s 170 # two GPUs: the nine faults of NCCL jobs
    python bench/diagnosis_gpu.py OUT --part one --budget-s 140    # one GPU: its five faults
    python bench/diagnosis_gpu.py OUT --part law --budget-s 135    # one GPU: the slow loop
    python bench/diagnosis_gpu.py OUT --smoke                      # no GPU: all of it on a CPU, gloo, tiny sizes

The exit status is 0 when everything was judged as declared, 1 when not, or when the budget did not suffice.

``CUDA_VISIBLE_DEVICES`` says which GPUs of a shared machine are ours; specimens on one GPU use the first of them.

Parts: ``doctor`` (what this machine allows), ``two`` (specimens on both GPUs with NCCL, several at a time), ``one``
(on one GPU, alone: a GPU that somebody else uses is evidence of its own), ``law``. ``bullet`` is ``doctor`` and
``two``. When the budget runs out, what is running is ended and what was judged so far is printed.

``law``: attention as a loop over tokens (legacy-sequential), the shape of the original reports, at five sizes; the
harness fits seconds per step = a + c x layers x tokens. Then 12 layers and 2048 tokens with the reports' limit of 60
seconds: the verdict must be SLOW, and say what bounds it and how long a step would have taken.

``OUT`` gets ``doctor.txt``, a score card for each group, ``law.json``, and ``evidence.tgz``: everything that was seen.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import textwrap
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

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
TINY = {**SHAPE, "model.dim": 64, "model.n_heads": 4, "model.d_k": 16, "model.d_v": 16, "train.device": "cpu"}
TINY |= {"train.precision": "fp32", "train.precision_mode": "autocast"}

SIZES = ((2, 128), (2, 256), (3, 256), (4, 256), (6, 256))
LAW_RESERVE_S = 66.0
"""What the very case needs at the end of the budget."""

TWO = [
    "nccl-skip",
    "nccl-spin",
    "nccl-straggler",
    "nccl-shape",
    "nccl-unused",
    "nccl-lock",
    "nccl-stopped",
    "nccl-slow",
    "nccl-killed",
]  # the long ones among the first, so that three at a time end together
ONE = ["gpu-spin", "gpu-oom", "gpu-host-bound", "gpu-thrash", "gpu-compile"]

SMOKE_SIZES = ((1, 16), (1, 32), (2, 32), (2, 48), (2, 64))
WANTED, LIMIT_S = (12, 2048), 60.0
MAX_FILE_BYTES = 4_000_000


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED_S:5.0f} s] {text}", flush=True)


STARTED_S = time.monotonic()


def left_s(budget_s: float) -> float:
    return budget_s - (time.monotonic() - STARTED_S)


def visible() -> list[str]:
    """The GPUs that are ours, as CUDA counts them on this machine."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1")
    return [name.strip() for name in given.split(",") if name.strip()]


def harness(out: Path, name: str, *argv: str, env: dict[str, str] | None = None, limit_s: float = 420) -> int:
    """Run one command of the harness; what it prints goes to ``OUT/name.txt`` and, when it has ended, to the screen."""
    path = out / f"{name}.txt"
    with path.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", *argv],
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()  # a clean end: it ends its trials and prints what was judged so far
            try:
                code = process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
    say(f"{name}: exit {code}\n{path.read_text()}")
    return code


def law(out: Path, keep: Path, *, smoke: bool, budget_s: float) -> bool:
    """Five sizes, the fitted law, and the very case of the reports; whether that case was told as it must be."""
    from harness.cli.wiring import parts
    from harness.core.trial import Prediction
    from harness.search.scaling import fit_scaling
    from harness.settings import Settings

    settings = Settings.read()
    if not smoke:
        settings = replace(settings, child_env=(*settings.child_env, ("CUDA_VISIBLE_DEVICES", visible()[-1])))
    points: list[tuple[float, float]] = []
    rows: list[dict[str, object]] = []
    wanted, limit_s = ((4, 512), 8.0) if smoke else (WANTED, LIMIT_S)
    with parts(settings, target="nsa", executor="local") as tools:
        for layers, tokens in SMOKE_SIZES if smoke else SIZES:
            if not smoke and len(points) > 2 and left_s(budget_s) < LAW_RESERVE_S + 12:
                say(f"law: no time is left for {layers} x {tokens}")
                continue
            done = trial(tools, keep, layers, tokens, limit_s=120, prediction=None, smoke=smoke)
            steps = done.evidence.measurement.step_s
            rows.append(row(done, layers, tokens))
            say(f"law: {layers} layers x {tokens} tokens: {done.verdict}, steps {[round(s, 2) for s in steps]} s")
            if steps:
                points.append((float(layers * tokens), steps[-1]))
        fit = fit_scaling("seconds per step", points, [float(wanted[0] * wanted[1])])
        prediction = None
        if fit is not None:
            step_s = fit.predicted[0][1]
            say(
                f"law: seconds per step = {fit.intercept:.2f} + {1000 * fit.slope:.3f} ms x layers x tokens "
                f"(95 %: {1000 * fit.slope_low:.3f} to {1000 * fit.slope_high:.3f} ms), R2 {fit.r_squared:.4f}, "
                f"exponent {fit.exponent}; {wanted[0]} x {wanted[1]}: {step_s:.0f} s a step"
            )
            basis = f"{len(points)} sizes up to {max(x for x, _ in points):.0f} layers x tokens"
            prediction = Prediction(
                total_s=step_s, total_high_s=3 * step_s, silence_s=step_s, silence_high_s=3 * step_s, basis=basis
            )
        done = trial(tools, keep, *wanted, limit_s=limit_s, prediction=prediction, smoke=smoke)
        rows.append(row(done, *wanted))
        case = f"{wanted[0]} layers x {wanted[1]} tokens, limit {limit_s:.0f} s"
        say(f"law: {case}: {done.verdict} by {done.verdict.rule}")
        print(textwrap.indent(textwrap.fill(done.verdict.because, 70), " " * 10), flush=True)
    from harness.core.codec import to_json

    (out / "law.json").write_text(json.dumps({"fit": to_json(fit), "trials": rows}, indent=1))
    # On a CPU there is no GPU that idles, and a few seconds tell nothing on a busy one: a smoke run shows that it runs.
    told = (
        done.verdict.kind == "SLOW" and done.verdict.cause == "host-bound" and "nodes per token" in done.verdict.because
    )
    right = fit is not None and (smoke or told)
    say(f"law: {'as it must be' if right else 'WRONG: must be SLOW (host-bound), with nodes per token and a law'}")
    return right


def trial(tools, keep, layers, tokens, *, limit_s, prediction, smoke):
    """One trial of the loop."""
    from harness.conduct import conduct
    from harness.core.point import Point
    from harness.core.spec import Limits
    from harness.core.trial import Trial
    from harness.core.verdict import Case
    from harness.plan.budget import budget
    from harness.store.cases import write_case

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
    folder = keep / f"law-{layers}x{tokens}"
    done = conduct(asked, trial_dir=folder, parts=tools)
    write_case(folder, Case(trial=asked, outcome=done.outcome, evidence=done.evidence), done.verdict)
    return done


def row(done, layers: int, tokens: int) -> dict[str, object]:
    from harness.core.codec import to_json

    return {
        "layers": layers,
        "tokens": tokens,
        "verdict": to_json(done.verdict),
        "seconds": done.outcome.duration_s,
        "step_s": list(done.evidence.measurement.step_s),
        "facts": dict(done.evidence.measurement.facts),
    }


def pack(out: Path, keep: Path) -> None:
    """The evidence, without what is too large to be looked at."""
    with tarfile.open(out / "evidence.tgz", "w:gz") as archive:
        for path in sorted(keep.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_FILE_BYTES:
                archive.add(path, arcname=str(path.relative_to(keep)))
            elif path.is_file():
                say(f"left out of evidence.tgz: {path.relative_to(keep)}, {path.stat().st_size} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the results")
    choices = ("doctor", "two", "one", "law", "bullet")
    parser.add_argument("--part", choices=choices, action="append", help="only this part; more than one adds up")
    parser.add_argument("--names", nargs="*", default=(), help="only these specimens, in part one or two")
    parser.add_argument("--budget-s", type=float, help="end everything cleanly after this time (280; law alone 134)")
    parser.add_argument("--jobs", type=int, default=3, help="specimens on two GPUs at a time")
    parser.add_argument("--smoke", action="store_true", help="on a CPU, tiny")
    args = parser.parse_args()
    parts = set(args.part or (("doctor", "two", "one", "law") if args.smoke else ("doctor", "two", "one")))
    parts |= {"doctor", "two"} if "bullet" in parts else set()
    right: list[bool] = []
    args.out.mkdir(parents=True, exist_ok=True)
    keep = args.out / "kept"
    keep.mkdir(exist_ok=True)
    os.chdir(ROOT)
    budget_s = (args.budget_s or (134.0 if parts == {"law"} else 280.0)) - 8  # for ending and packing
    if "doctor" in parts:
        harness(args.out, "doctor", "doctor", limit_s=30)
    common = ("--keep", str(keep), "--executor", "local")
    if "two" in parts:
        chosen = ("gloo-skip",) if args.smoke else args.names or TWO
        jobs = ("--jobs", str(args.jobs))
        right.append(harness(args.out, "two", "selftest", *chosen, *common, *jobs, limit_s=left_s(budget_s)) == 0)
    if "one" in parts:
        chosen = ("lock-deadlock",) if args.smoke else args.names or ONE
        first = {"CUDA_VISIBLE_DEVICES": visible()[0]}
        enough = left_s(budget_s) > 30
        right.append(
            enough and harness(args.out, "one", "selftest", *chosen, *common, env=first, limit_s=left_s(budget_s)) == 0
        )
    if "law" in parts:
        right.append(law(args.out, keep, smoke=args.smoke, budget_s=budget_s))
    pack(args.out, keep)
    say(f"done: {'everything as declared' if all(right) else 'NOT everything as declared'}")
    raise SystemExit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
