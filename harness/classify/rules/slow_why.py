"""A trial that was only slow, and what kept it: the allocator that starts over, or a GPU that waits for its host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from harness.classify.facts import main_pid
from harness.classify.frames import spell
from harness.classify.gpus import gpus_of
from harness.classify.rules.slow import predicted, slow
from harness.core.stacks import deciding_thread, telling_frame

if TYPE_CHECKING:
    from harness.core.verdict import Case, Verdict

RETRIES_A_STEP = 1.0
"""Times a step that the allocator gave back all it kept from which it counts; a healthy run does so never or once."""

MARKS = 3
HOST_SHARE = 0.7
"""CPU seconds per second of the host from which it is what the GPU waits for."""


def slow_why(case: Case) -> Verdict | None:
    """SLOW with a cause; without one, ``slow`` itself says it."""
    verdict = slow(case)
    return None if verdict is None else with_cause(case, verdict)


def with_cause(case: Case, verdict: Verdict) -> Verdict | None:
    """``verdict`` with what kept ``case`` from being fast; None when nothing shows it."""
    return _thrash(case, verdict) or _host_bound(case, verdict)


def _thrash(case: Case, verdict: Verdict) -> Verdict | None:
    rank = verdict.rank or 0
    marks = [mark for mark in case.evidence.measurement.memory if mark.rank == rank]
    if len(marks) < MARKS:
        return None
    steps = marks[-1].step - marks[0].step
    retries = marks[-1].gpu_alloc_retries - marks[0].gpu_alloc_retries
    if steps < 1 or retries < RETRIES_A_STEP * steps:
        return None
    held = marks[-1].gpu_reserved_bytes / 2**20
    because = (
        f"torch's allocator gave back all that it kept and asked the driver again {retries:.0f} times in {steps} steps "
        f"(it holds {held:.0f} MiB): memory is too short for the sizes that change; {verdict.because}"
    )
    return replace(verdict, rule="slow_why", cause="allocator-thrash", because=because)


def _host_bound(case: Case, verdict: Verdict) -> Verdict | None:
    gpus = gpus_of(case, silent=False)
    if not gpus or not all(gpu.idle for gpu in gpus) or not _host_works(case):
        return None
    thread = next((t for s in reversed(case.evidence.stacks) if (t := deciding_thread(s)) is not None), None)
    at = f", last seen in {spell(telling_frame(thread))}" if thread else ""
    because = (
        f"host-bound: GPU idle{_nodes(case)}; {_forecast(case)}the host computes{at}, while of the GPU was seen: "
        f"{'; '.join(map(str, gpus))}; {verdict.because.removesuffix(predicted(case))}"
    )
    ids = [*verdict.cites, *(id for gpu in gpus for id in gpu.ids)]
    return replace(verdict, rule="slow_why", cause="host-bound", because=because, cites=tuple(dict.fromkeys(ids)))


def _host_works(case: Case) -> bool:
    """Whether the training process computed on the CPU between its first and its last look."""
    looks = [look for look in case.evidence.processes if look.pid == main_pid(case)]
    if len(looks) < 2 or looks[-1].t_s <= looks[0].t_s:
        return False
    return (looks[-1].cpu_s - looks[0].cpu_s) / (looks[-1].t_s - looks[0].t_s) >= HOST_SHARE


def _nodes(case: Case) -> str:
    """``, 1896 autograd nodes per token (158 in each of 12 layers)``, where the worker counted them."""
    facts = dict(case.evidence.measurement.facts)
    nodes, blocks, tokens = facts.get("forward_nodes"), facts.get("forward_blocks"), _tokens(case)
    if not (nodes and blocks and tokens):
        return ""
    each, layers = nodes / tokens / blocks, _layers(case)
    return f", {each * layers:.0f} autograd nodes per token ({each:.0f} in each of {layers:.0f} layers)"


def _forecast(case: Case) -> str:
    """How long it should take by what passed trials say, and the forward in progress by its blocks."""
    facts, prediction = dict(case.evidence.measurement.facts), case.trial.prediction
    blocks, seconds, wanted = facts.get("forward_blocks"), facts.get("forward_s"), _layers(case)
    said = ""
    if prediction is not None:
        what = "a step" if case.evidence.steps_wanted == 1 else f"{case.evidence.steps_wanted} healthy steps"
        basis, limit_s = prediction.basis, case.trial.budget.total.seconds
        said = (
            f"{what} should take {prediction.total_s:.0f} s (predicted from {basis}), the limit was {limit_s:.0f} s; "
        )
    if blocks and seconds and wanted:
        whole_s = seconds * wanted / blocks
        said += f"{blocks:.0f} of {wanted:.0f} layers took {seconds:.1f} s, so one forward takes {whole_s:.0f} s; "
    return said


def _tokens(case: Case) -> float:
    train = case.trial.config.get("train")
    settings = cast("dict[str, float]", train) if isinstance(train, dict) else {}
    return settings.get("batch_size", 0) * settings.get("seq_len", 0)


def _layers(case: Case) -> float:
    model = case.trial.config.get("model")
    return cast("dict[str, float]", model).get("n_layers", 0) if isinstance(model, dict) else 0
