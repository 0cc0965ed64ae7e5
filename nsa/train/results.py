"""What comes out of a run: text, a loss on other text, and files for other programs.

    nsa-train generate RUN --prompt "def main("
    nsa-train evaluate RUN --text FILE
    nsa-train export RUN FOLDER --format safetensors

RUN is a run's ``train.out_dir``. The newest whole checkpoint is read, or the one of ``--step``; it carries its
configuration, so nothing has to be said again. Kernels are chosen for the machine at hand.

Exit status: 0, or 2 where RUN has no checkpoint or the request does not fit it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nsa.config import KernelConfig, RunConfig
from nsa.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from nsa.model.transformer import Decoder

COMMANDS = ("generate", "evaluate", "export")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A run's model as it was after ``n_steps`` steps, on ``config.train.device``, and what the run was asked for."""

    config: RunConfig
    n_steps: int
    model: Decoder


def trained(run: Path, *, n_steps: int | None = None, device: str = "auto") -> Trained:
    """The model of a run's checkpoint.

    Args:
        run: the run's ``train.out_dir``.
        n_steps: which checkpoint, by the steps done; the newest if None.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.

    Raises:
        ConfigError: no such checkpoint, or it does not fit the configuration beside it.
    """
    import torch

    from nsa.model.build import build_model
    from nsa.train.checkpoint import configuration_of, load_model, newest
    from nsa.train.precision import cast

    found = newest(run / "checkpoints", n_steps)
    if found is None:
        which = "no whole checkpoint" if n_steps is None else f"no checkpoint of {n_steps} steps"
        raise ConfigError(f"{run} has {which}; give a run's train.out_dir, trained with train.save_every")
    n_steps, folder = found
    config = configuration_of(folder)
    here = "cuda" if torch.cuda.is_available() else "cpu"
    changes = {"train.device": here if device == "auto" else device, "train.checkpointing": "none"}
    changes |= {"train.cuda_graphs": "off", "train.compile": "off"}
    changes |= {f"kernels.{op}": "auto" for op in ("compressed", "scores", "selected", "window", "combine")}
    config = config.with_values({**changes, "kernels.sdpa": KernelConfig().sdpa})
    model, _ = build_model(config)
    cast(model, config.train)
    load_model(folder, model)
    return Trained(config=config, n_steps=n_steps, model=model.eval().requires_grad_(requires_grad=False))


def text_of(
    run: Trained,
    prompt: str,
    *,
    n_new: int,
    temperature: float = 0.8,
    top_k: int | None = None,
    seed: int = 0,
) -> str:
    """The prompt and what the model adds to it, until the token that ends a document where the tokenizer has one.

    Args:
        run: whose model.
        prompt: at least one token.
        n_new: tokens to add at most.
        temperature: divides the logits; 0 takes the likeliest token.
        top_k: sample among the k likeliest only.
        seed: of the sampling.

    Raises:
        ConfigError: the tokenizer is not there, or a setting means nothing.
        InputError: an empty prompt.
    """
    import torch

    from nsa.model.generate import generate
    from nsa.train.precision import arithmetic
    from nsa.train.tokens import make_tokenizer

    train = run.config.train
    tokenizer = make_tokenizer(run.config, is_remote=train.data == "fineweb-edu" and not train.data_path)
    ids_BT = tokenizer.begin(prompt).long()[None].to(train.device)
    with arithmetic(train):
        ids_BT = generate(
            run.model,
            ids_BT,
            n_new,
            temperature=temperature,
            top_k=top_k,
            stop=tokenizer.end,
            generator=torch.Generator(train.device).manual_seed(seed),
        )
    return tokenizer.decode(ids_BT[0].cpu())


def held_out_loss(run: Trained, *, text: str | None = None, n_batches: int | None = None) -> dict[str, float]:
    """The mean loss on what the run was not trained on.

    Args:
        run: whose model.
        text: a text file or a folder of them; what ``train.eval_every`` would read if None.
        n_batches: batches of the run's own shape; ``train.eval_batches`` if None.

    Returns:
        steps, loss (nats per token), ppl, and tokens that were predicted.

    Raises:
        ConfigError: there is no such text, or it is shorter than a batch.
    """
    import torch

    from nsa.train.data import EndOfData, held_out
    from nsa.train.documents import packed
    from nsa.train.precision import next_token_loss

    config = run.config if text is None else run.config.with_value("train.val_path", text)
    fetch, losses = held_out(config), []
    for number in range(config.train.eval_batches if n_batches is None else n_batches):
        try:
            (ids_BT,) = fetch(number)
        except EndOfData:
            break
        with torch.no_grad():
            ids = packed(ids_BT) if config.train.documents else ids_BT
            losses.append(next_token_loss(run.model, config.train, ids.to(config.train.device)).item())
    if not losses:
        shape = f"{config.train.batch_size} x {config.train.seq_len}"
        raise ConfigError(f"the text has no batch of {shape} tokens; give a longer one, or --batches 1 or more")
    loss = sum(losses) / len(losses)
    n_tokens = len(losses) * config.train.batch_size * config.train.seq_len
    return {"steps": run.n_steps, "loss": loss, "ppl": math.exp(min(loss, 700.0)), "tokens": n_tokens}


def export(run: Trained, folder: Path, *, kind: str) -> None:
    """Write the model for other programs.

    Args:
        run: whose model.
        folder: where; made if it is not there.
        kind: "safetensors" for ``model.safetensors`` under this package's names beside ``config.json``, the run's
            configuration; "hf" for what ``AutoModelForCausalLM.from_pretrained`` reads once ``nsa.hf`` is imported.

    Raises:
        ConfigError: the packages that write it are not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if kind == "hf":
            return _export_hf(run, folder)
        from safetensors.torch import save_file
    except ImportError as error:
        raise ConfigError(f"--format {kind} needs {error.name}; pip install 'nsa-harness[hf]'") from error
    save_file(_weights(run), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(run.config.to_json(), encoding="utf-8")
    return None


def _weights(run: Trained) -> dict[str, torch.Tensor]:
    """The state under its names; a tied head is not written a second time."""
    state = run.model.state_dict()
    if run.config.model.tied_head:
        del state["lm_head.weight"]
    return {name: x.contiguous().cpu() for name, x in state.items()}


def _export_hf(run: Trained, folder: Path) -> None:
    from nsa.hf import NSAConfig, NSAForCausalLM
    from nsa.train.tokens import GPT2_END

    sizes = run.config.model
    kind = "nsa" if sizes.attention == "legacy-sequential" else sizes.attention  # the same weights, read at once
    end = GPT2_END if run.config.train.tokenizer == "gpt2" else None
    config = NSAConfig.of(run.config.with_value("model.attention", kind).model, eos_token_id=end)
    model = NSAForCausalLM(config)
    model.model.load_state_dict(run.model.state_dict())
    model.model.to(run.model.embed.weight.dtype)
    model.save_pretrained(folder)


def main(argv: Sequence[str]) -> int:
    """Run ``generate``, ``evaluate`` or ``export``; ConfigError and InputError are the caller's to show."""
    options = _parser().parse_args(argv)
    run = trained(options.run, n_steps=options.step, device=options.device)
    if options.command == "generate":
        how = {"n_new": options.tokens, "temperature": options.temperature, "top_k": options.top_k}
        sys.stdout.write(text_of(run, options.prompt, **how, seed=options.seed) + "\n")
    elif options.command == "evaluate":
        sys.stdout.write(json.dumps(held_out_loss(run, text=options.text, n_batches=options.batches)) + "\n")
    else:
        export(run, options.folder, kind=options.format)
        sys.stderr.write(f"{options.folder}: {options.format} of {run.n_steps} steps\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nsa-train", description="What comes out of a run.")
    commands = parser.add_subparsers(dest="command", required=True)
    generate = commands.add_parser("generate", help="continue a text")
    evaluate = commands.add_parser("evaluate", help="the loss on text that the run was not trained on, as JSON")
    exported = commands.add_parser("export", help="write the model for other programs")
    for command in (generate, evaluate, exported):
        command.add_argument("run", type=Path, metavar="RUN", help="the run's train.out_dir")
        command.add_argument("--step", type=int, help="steps done at the checkpoint; the newest if not given")
        command.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where (default: auto)")
    generate.add_argument("--prompt", required=True, help="what the text begins with")
    generate.add_argument("--tokens", type=int, default=200, help="tokens to add at most (default: 200)")
    generate.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest (default: 0.8)")
    generate.add_argument("--top-k", type=int, help="sample among so many likeliest only")
    generate.add_argument("--seed", type=int, default=0, help="of the sampling (default: 0)")
    evaluate.add_argument("--text", help="a text file or a folder of them; the run's own held-out text if not given")
    evaluate.add_argument("--batches", type=int, help="so many batches; train.eval_batches if not given")
    exported.add_argument("folder", type=Path, metavar="FOLDER", help="where to write")
    exported.add_argument(
        "--format", choices=("safetensors", "hf"), default="safetensors", help="(default: safetensors)"
    )
    return parser
