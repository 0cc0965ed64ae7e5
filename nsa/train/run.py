"""A run in progress on one rank: its steps, what is decided between them, and its end."""

from __future__ import annotations

import logging
import math
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from nsa.errors import DataFailed, NonFiniteLoss
from nsa.train.checkpoint import Checkpoints
from nsa.train.data import EndOfData
from nsa.train.documents import Packed, packed
from nsa.train.optim import learning_rate
from nsa.train.precision import make_scaler, next_token_loss
from nsa.train.probe import Phase
from nsa.train.votes import Decision, Wish, decide, naming_the_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from nsa.config import RunConfig
    from nsa.train.census import Census
    from nsa.train.graphs import Captured
    from nsa.train.live import LiveState
    from nsa.train.loader import Loader
    from nsa.train.parallel import Single
    from nsa.train.progress import Announcer, GradientArrivals
    from nsa.train.world import World

log = logging.getLogger(__name__)

HALT_FILE = ".HALT"
"""A file of this name in ``train.out_dir`` ends the run after the step in progress."""

_ENDS = {
    Wish.END_OF_DATA: "the data ended",
    Wish.HALT: f"a file {HALT_FILE} ended the run",
    Wish.SIGNAL: "a signal ended the run",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """What a finished run leaves: every step's loss, and what ran.

    Attributes:
        config: what ran, ``auto`` resolved.
        losses: of the steps that this process ran; the mean over all ranks.
        n_parameters: of the whole model.
        kernels: which kernel ran each operator and why.
        first_step: 0, or the step at which a checkpoint was continued.
        ended: why there were no more steps: "all steps done", or what ended them early.
        wish: the same for programs; GO_ON when all steps are done.
    """

    config: RunConfig
    losses: tuple[float, ...]
    n_parameters: int
    kernels: tuple[dict[str, str], ...]
    first_step: int = 0
    ended: str = "all steps done"
    wish: Wish = Wish.GO_ON


@dataclass(slots=True, kw_only=True)
class Run:
    """A run in progress on this rank."""

    config: RunConfig
    world: World
    announcer: Announcer
    plan: Single
    state: LiveState
    loader: Loader
    held_out: Callable[[int], list[Tensor]] | None
    stop_asked: Callable[[], bool]
    kernels: tuple[dict[str, str], ...]
    n_parameters: int
    census: Census
    arrivals: GradientArrivals | None = None
    graphs: Captured | None = None
    first_step: int = 0
    losses: list[float] = field(default_factory=list)
    substituted: str = ""
    scaler: torch.amp.GradScaler | None = None
    checkpoints: Checkpoints | None = None
    problem: str = ""

    def prepare_folder(self) -> None:
        """Remove a HALT file of an earlier run, and continue from the newest checkpoint if asked to."""
        train = self.config.train
        self.scaler = make_scaler(train)
        if not train.out_dir:
            return
        self.checkpoints = Checkpoints(Path(train.out_dir), self.world)
        if self.world.rank == 0:
            Path(train.out_dir).mkdir(parents=True, exist_ok=True)
            self._halt_file.unlink(missing_ok=True)
            self.checkpoints.clean()
        newest = self.checkpoints.newest() if train.resume else None
        if newest is not None:
            self.first_step, folder = newest
            mine = {**self._extra(), "data": dict.fromkeys(self.checkpoints.data_parts(folder), "")}
            extra = self.checkpoints.load(folder, self.plan.module, self.state.optimizer, extra=mine)
            self.loader.go_to(extra["data"])
            if self.scaler is not None:
                self.scaler.load_state_dict(extra["scaler"])

    def to_the_end(self) -> TrainResult:
        """All steps, or as many as are agreed on."""
        try:
            return self._steps()
        finally:
            self.loader.close()
            self.plan.close()

    def _steps(self) -> TrainResult:
        for step in range(self.first_step, self.config.train.steps):
            decision = self._step(step)
            if decision.wish is not Wish.GO_ON:
                return self._result(decision, step)
            n_steps = step + 1
            if self.config.train.save_every and n_steps % self.config.train.save_every == 0:
                self._save(n_steps)
        return self._result(None, self.config.train.steps)

    def _step(self, step: int) -> Decision:
        """One optimizer step, unless it is decided to end before it."""
        began, train = time.perf_counter(), self.config.train
        with phase(self.announcer, Phase.DATA, step):
            wish, micro_batches = self._fetched(step)
        decision = self._decide(step, wish, where="before forward")
        if decision.wish is Wish.NO_DATA:
            raise DataFailed(self._problem_of(decision, step))
        if decision.wish is Wish.SUBSTITUTE:
            self._substitute(self._problem_of(decision, step))
            _, micro_batches = self._fetched(step)
        elif decision.wish is not Wish.GO_ON:
            return decision
        values = [
            self._micro_batch(step, ids, is_first=i == 0, is_last=i == len(micro_batches) - 1)
            for i, ids in enumerate(micro_batches)
        ]
        if self.plan.reduces:
            with self._phase_together(Phase.REDUCE, step):
                self.plan.reduce()
        with self._phase_together(Phase.OPTIM, step):
            norm, lr = self._optimize(step)
            if train.device == "cuda":
                # Nothing has been waited for since forward. A wait for a GPU that waits for a lost rank has no end.
                where = f"step {step}, after backward"
                decide(self.world, Wish.GO_ON, where=where, timeout_s=self.config.parallel.timeout_s)
            grad_norm = norm.item()
        step_s = time.perf_counter() - began
        value = sum(values) / len(values)
        n_tokens = train.batch_size * train.accumulate * train.seq_len
        facts = {
            "loss": value,
            "tokens": float(n_tokens),
            "grad_norm": grad_norm,
            "lr": lr,
            "step_s": step_s,
            "tokens_per_s": n_tokens / step_s,
        }
        if self.substituted:
            facts["synthetic"] = 1.0
        self.losses.append(value)
        self.loader.done()
        if train.eval_every and (step + 1) % train.eval_every == 0:
            facts["val_loss"] = self._held_out_loss(step)
        for probe in self.announcer.probes:
            probe.step_done(step=step, facts=facts)
        return Decision(wish=Wish.GO_ON, ranks=(), loss=value)

    def _fetched(self, step: int) -> tuple[Wish, list[Tensor | Packed]]:
        """This rank's micro-batches on the device, and what it wants to do with them."""
        try:
            micro_batches = [self._on_device(ids_BT) for ids_BT in self.loader.fetch(step)]
        except EndOfData:
            return Wish.END_OF_DATA, []
        except DataFailed as error:
            self.problem = str(error)
            return (Wish.SUBSTITUTE if self.config.train.synthetic_on_fail else Wish.NO_DATA), []
        if self.stop_asked():
            return Wish.SIGNAL, micro_batches
        if self.checkpoints is not None and self._halt_file.exists():
            return Wish.HALT, micro_batches
        return Wish.GO_ON, micro_batches

    def _on_device(self, ids_BT: Tensor) -> Tensor | Packed:
        """The ids where the model is, packed where documents are kept apart; a GPU fetches them by itself."""
        if self.config.train.documents:
            return packed(ids_BT).to(self.config.train.device)
        if self.config.train.device == "cpu":
            return ids_BT
        return ids_BT.pin_memory().to(self.config.train.device, non_blocking=True)

    def _problem_of(self, decision: Decision, step: int) -> str:
        """Whose data failed, and why: known to the rank itself."""
        who = ", ".join(map(str, decision.ranks))
        mine = self.world.rank in decision.ranks
        return f"rank {who} has no data at step {step}: {self.problem if mine else 'its own output says why'}"

    def _substitute(self, problem: str) -> None:
        """Random ids from now on, on all ranks, and say so wherever this run says anything."""
        self.substituted = f"random ids instead of train.data = {self.config.train.data!r}: {problem}"
        self.loader.substitute()
        log.warning("%s", self.substituted)
        with phase(self.announcer, Phase.DATA, self.announcer.step):
            self.announcer.progress(self.substituted)

    def _held_out_loss(self, step: int) -> float:
        """The mean loss of the held-out batches, over all ranks."""
        assert self.held_out is not None, "built when train.eval_every is set"
        values: list[float] = []
        with self._phase_together(Phase.EVAL, step), torch.no_grad():
            for number in range(self.config.train.eval_batches):
                try:
                    (ids_BT,) = self.held_out(number)
                except EndOfData:
                    break
                loss = next_token_loss(self.plan.for_evaluation, self.config.train, self._on_device(ids_BT))
                values.append(loss.item())
        mean = sum(values) / len(values) if values else math.nan
        return self._decide(step, Wish.GO_ON, where="after evaluation", loss=mean).loss

    def _micro_batch(self, step: int, ids: Tensor | Packed, *, is_first: bool, is_last: bool) -> float:
        """Forward and backward; returns the loss, averaged over ranks.

        Raises:
            NonFiniteLoss: on all ranks, before any of them waits in backward for one that has left.
        """
        train = self.config.train
        with self.plan.micro_batch(is_last=is_last):
            with self._phase_together(Phase.FORWARD, step):
                with self.census.forward():
                    loss = next_token_loss(self.plan.module, train, ids)
                self.census.before_backward(loss)
                loss = self.state.changed(loss)
                value = loss.item()
                wish = Wish.GO_ON if math.isfinite(value) else Wish.NOT_FINITE
                if not self.world.is_parallel:
                    self._check_finite(step, Decision(wish=wish, ranks=(0,), loss=value))
            decision = self._decide(step, wish, where="before backward", loss=value)
            self._check_finite(step, decision)
            with self._phase_together(Phase.BACKWARD, step):
                if self.arrivals is not None:
                    self.arrivals.begin()
                part = loss if train.accumulate == 1 else loss / train.accumulate
                (part if self.scaler is None else self.scaler.scale(part)).backward()
                if self.graphs is not None and is_first and not is_last:
                    self.graphs.own_gradients()
        return decision.loss

    def _optimize(self, step: int) -> tuple[Tensor, float]:
        """Clip, step and clear; returns the gradients' norm before clipping, on the device, and the learning rate."""
        optimizer, train = self.state.optimizer, self.config.train
        lr = learning_rate(train, step)
        for group in optimizer.param_groups:
            group["lr"] = lr
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)
        norm = self.plan.clip(train.grad_clip or math.inf)
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return norm, lr

    def _decide(self, step: int, wish: Wish, *, where: str, loss: float = 0.0) -> Decision:
        """What all ranks do next; waiting for them is the phase ``reduce``."""
        timeout_s = self.config.parallel.timeout_s
        if not self.world.is_parallel:
            return decide(self.world, wish, loss=loss, where=where, timeout_s=timeout_s)
        with phase(self.announcer, Phase.REDUCE, step):
            return decide(self.world, wish, loss=loss, where=f"step {step}, {where}", timeout_s=timeout_s)

    @contextmanager
    def _phase_together(self, name: Phase, step: int) -> Iterator[None]:
        """A phase in which other ranks may be needed: one that is gone is named."""
        with phase(self.announcer, name, step), naming_the_lost(self.world, where=f"in {name} of step {step}"):
            yield

    def _check_finite(self, step: int, decision: Decision) -> None:
        if decision.wish is not Wish.NOT_FINITE:
            return
        on = f" on rank {', '.join(map(str, decision.ranks))}" if self.world.is_parallel else ""
        raise NonFiniteLoss(
            f"loss = {decision.loss} at step {step}{on}, in {Phase.FORWARD}, before backward; "
            f"train.lr = {self.config.train.lr:g}. Lower train.lr, or set train.detect_anomaly to find the operator"
        )

    def _result(self, decision: Decision | None, n_steps: int) -> TrainResult:
        """The end, with a checkpoint where a run was ended from outside."""
        wish = Wish.GO_ON if decision is None else decision.wish
        if wish in (Wish.HALT, Wish.SIGNAL):
            self._save(n_steps)
        ranks = "" if decision is None else ", ".join(map(str, decision.ranks))
        ended = "all steps done" if decision is None else f"{_ENDS[wish]} after {n_steps} steps, on rank {ranks}"
        return TrainResult(
            config=self.config,
            losses=tuple(self.losses),
            n_parameters=self.n_parameters,
            kernels=self.kernels,
            first_step=self.first_step,
            ended=f"{ended}; {self.substituted}" if self.substituted else ended,
            wish=wish,
        )

    def _save(self, n_steps: int) -> None:
        if self.checkpoints is not None:
            with self._phase_together(Phase.SAVE, n_steps - 1):
                self.checkpoints.save(
                    n_steps, self.plan.module, self.state.optimizer, extra=self._extra(), config=self.config
                )

    def _extra(self) -> dict[str, object]:
        scaler = self.scaler.state_dict() if self.scaler is not None else {}
        return {"scaler": scaler, "data": self.loader.position()}

    @property
    def _halt_file(self) -> Path:
        return Path(self.config.train.out_dir) / HALT_FILE


@contextmanager
def phase(announcer: Announcer, name: Phase, step: int | None) -> Iterator[None]:
    """Announce a phase; one that raises has begun and not ended."""
    announcer.begin(name, step)
    yield
    announcer.end()
