"""A trial that was only slow, and what kept it: the allocator that starts over, or a GPU that waits for its host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.classify.facts import main_pid
from harness.classify.rules.oom import memory_marks
from harness.classify.rules.slow import predicted, slow
from harness.classify.signs import gpus_of
from harness.classify.views import cited
from harness.core.dotted import leaves
from harness.core.evidence import GRAPH_NODES
from harness.reading.frames import deciding_thread, spell, telling_frame

if TYPE_CHECKING:
    from harness.core.evidence import ThreadStack
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
    """``verdict`` with what kept ``case`` from being fast; None when nothing shows it.

    Where one rank is late in every step, that is the cause: the others' GPUs are idle because they wait for it.
    """
    return _thrash(case, verdict) or (None if verdict.cause else _host_bound(case, verdict))


def _thrash(case: Case, verdict: Verdict) -> Verdict | None:
    marks = memory_marks(case, rank=verdict.rank or 0)
    if len(marks) < MARKS:
        return None
    steps = marks[-1].step - marks[0].step
    retries = marks[-1].gpu_alloc_retries - marks[0].gpu_alloc_retries
    if steps < 1 or retries < RETRIES_A_STEP * steps:
        return None
    reserved_mib = marks[-1].gpu_reserved_bytes / 2**20
    because = (
        f"torch's allocator gave back all that it kept and asked the driver again {retries:.0f} times in {steps} steps "
        f"(it holds {reserved_mib:.0f} MiB): memory is too short for the sizes that change; {verdict.because}"
    )
    return replace(verdict, cause="allocator-thrash", because=because)


def _host_bound(case: Case, verdict: Verdict) -> Verdict | None:
    gpus = gpus_of(case, silent=False)
    if not gpus or not all(gpu.idle for gpu in gpus) or not _host_works(case):
        return None
    thread = _last_thread(case)
    at = f", last seen in {spell(telling_frame(thread))}" if thread else ""
    because = (
        f"host-bound: GPU hardly used{_nodes(case)}; {_forecast(case)}the host computes{at}, while of the GPU was "
        f"seen: {'; '.join(map(str, gpus))}; {verdict.because.removesuffix(predicted(case))}"
    )
    cites = tuple(dict.fromkeys((*verdict.cites, *cited(gpus))))
    return replace(verdict, cause="host-bound", because=because, cites=cites)


def _last_thread(case: Case) -> ThreadStack | None:
    """The thread that decides, by the last stack that shows which it is."""
    for sample in reversed(case.evidence.stacks):
        thread = deciding_thread(sample)
        if thread is not None:
            return thread
    return None


def _host_works(case: Case) -> bool:
    """Whether the training process computed on the CPU between its first and its last look."""
    looks = [look for look in case.evidence.processes if look.pid == main_pid(case)]
    if len(looks) < 2 or looks[-1].t_s <= looks[0].t_s:
        return False
    return (looks[-1].cpu_s - looks[0].cpu_s) / (looks[-1].t_s - looks[0].t_s) >= HOST_SHARE


def _nodes(case: Case) -> str:
    """``, 1896 autograd nodes per token (158 in each of 12 layers)``, where the worker counted them."""
    nodes, layers, settings = _of_a_forward(case, GRAPH_NODES), _layers(case), leaves(case.trial.config)
    tokens = settings.get("train.batch_size", 0) * settings.get("train.seq_len", 0)
    if not (nodes and tokens):
        return ""
    each = nodes / tokens
    return f", {each:.0f} autograd nodes per token ({each / layers:.0f} in each of {layers:.0f} layers)"


def _forecast(case: Case) -> str:
    """How long it should take by what passed trials say, and the forward in progress by its blocks."""
    forward_s = _of_a_forward(case, "forward_s")
    sentences = [_should_take(case, forward_s)]
    if forward_s:
        facts = dict(case.evidence.measurement.facts)
        blocks = f"{facts['forward_blocks']:.0f} of {_layers(case):.0f} layers took {facts['forward_s']:.1f} s"
        whole = "so one forward takes" if _is_whole(case) else "at that pace one forward takes about"
        sentences.append(f"{blocks}, {whole} {forward_s:.0f} s; ")
    return "".join(sentences)


def _should_take(case: Case, forward_s: float) -> str:
    """The prediction beside the limit: by the autograd nodes it builds where that is more, a bound where it is far.

    A forward pass that alone takes longer refutes it, which is said.
    """
    prediction, steps = case.trial.prediction, case.evidence.steps_wanted
    if prediction is None:
        return ""
    what = "a step" if steps == 1 else f"{steps} healthy steps"
    limit = f"the limit was {case.trial.budget.total.seconds:.0f} s; "
    nodes, node_s = _of_a_forward(case, GRAPH_NODES), prediction.node_s or 0.0
    if (by_nodes_s := steps * nodes * node_s) > prediction.total_s:
        count = f"{'' if _is_whole(case) else 'about '}{nodes:.0f} autograd nodes"
        each = f"{count} at {1e6 * node_s:.1f} us each, as in {prediction.source}"
        return f"{what} should take about {by_nodes_s:.0f} s ({each}), {limit}"
    if steps * forward_s > prediction.total_s:
        predicted_s = f"{prediction.least}{prediction.total_s:.0f} s"
        return f"{predicted_s} were predicted for {what} (from {prediction.source}), which its forward exceeds; {limit}"
    return (
        f"{what} should take {prediction.least}{prediction.total_s:.0f} s (predicted from {prediction.source}), {limit}"
    )


def _is_whole(case: Case) -> bool:
    """Whether all blocks of the forward pass were seen, so that nothing of it is an estimate."""
    return dict(case.evidence.measurement.facts).get("forward_blocks") == _layers(case)


def _of_a_forward(case: Case, fact: str) -> float:
    """Seconds or autograd nodes of one whole forward pass, by those of its blocks so far; 0 where none were counted."""
    facts = dict(case.evidence.measurement.facts)
    blocks, so_far = facts.get("forward_blocks"), facts.get(fact)
    return so_far * _layers(case) / blocks if blocks and so_far else 0.0


def _layers(case: Case) -> float:
    return leaves(case.trial.config).get("model.n_layers", 0)
