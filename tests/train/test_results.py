"""What comes out of a run is the model that was trained: its losses, its text, its weights in other formats."""

import builtins
import json
import shutil
import sys

import pytest
import torch
from rank_work import SMALL, run

from nsa.config import RunConfig
from nsa.errors import ConfigError
from nsa.model.generate import generate
from nsa.model.transformer import Decoder
from nsa.train.__main__ import main
from nsa.train.data import batches
from nsa.train.precision import next_token_loss
from nsa.train.results import held_out_loss, text_of, trained
from nsa.train.telemetry import watching
from nsa.train.trainer import train

LONG = {"train.steps": 5, "train.lr": 3e-3, "train.save_every": 3}


def loss_of_the_next_step(found):
    """What the run itself saw first after the checkpoint."""
    (ids,) = batches(found.config)(found.n_steps)
    with torch.no_grad():
        return next_token_loss(found.model, found.config.train, ids).item()


@pytest.fixture(scope="module")
def a_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    _, losses, _ = run(0, {**LONG, "train.save_every": 2, "train.out_dir": str(folder)})
    return folder, losses


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize(
    "changes",
    [
        {"model.decoder": "modern", "model.tied_head": True, "model.phi": "mean"},
        pytest.param({"train.precision": "bf16"}, marks=pytest.mark.long),
        {"train.precision": "bf16", "train.precision_mode": "pure"},
        {"model.attention": "dense", "train.compile": "aot_eager"},
        pytest.param(
            {"model.attention": "legacy-sequential", "train.seq_len": 40, "model.n_layers": 1}, marks=pytest.mark.long
        ),
        {"train.checkpointing": "selective", "kernels.selected": "gather"},
    ],
    ids=lambda changes: " ".join(map(str, changes.values())),
)
def test_the_model_of_a_checkpoint_has_the_loss_that_the_run_had_next(tmp_path, changes):
    _, losses, _ = run(0, {**LONG, **changes, "train.out_dir": str(tmp_path)})
    found = trained(tmp_path, device="cpu")
    assert found.n_steps == 3
    assert loss_of_the_next_step(found) == pytest.approx(losses[3], rel=1e-6)
    assert losses[3] != pytest.approx(losses[2], rel=1e-4)


@pytest.mark.parametrize(
    "mode", ["fsdp", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("ddp", "fsdp1", "manual"))]
)
def test_the_model_of_two_ranks_comes_out_in_one_process(ranks, tmp_path, mode):
    _, losses, _ = ranks.run(run, {**LONG, "train.out_dir": str(tmp_path), "parallel.mode": mode})[0]
    assert loss_of_the_next_step(trained(tmp_path, device="cpu")) == pytest.approx(losses[3], rel=1e-5)


def test_evaluation_is_what_the_run_wrote_into_val_csv(tmp_path, capsys):
    run(0, {"train.out_dir": str(tmp_path), "train.save_every": 2, "train.eval_every": 2, "train.steps": 3})
    wanted = held_out_loss(trained(tmp_path, device="cpu"))
    text = tmp_path / "other.txt"
    text.write_text("the same line again and again\n" * 400)
    assert main(["evaluate", str(tmp_path), "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out) == wanted
    assert (wanted["steps"], wanted["tokens"]) == (2, 4 * 4 * 96)
    other = held_out_loss(trained(tmp_path, device="cpu"), text=str(text), n_batches=2)
    assert other["tokens"] == 2 * 4 * 96
    assert other["loss"] != wanted["loss"]
    assert main(["evaluate", str(tmp_path), "--device", "cpu", "--text", str(text), "--batches", "100"]) == 0
    text.write_text("short")
    assert main(["evaluate", str(tmp_path), "--device", "cpu", "--text", str(text)]) == 2
    assert "longer than the text" in capsys.readouterr().err


def test_evaluation_equals_the_loss_that_the_run_logged(tmp_path):
    changes = {"train.out_dir": str(tmp_path), "train.save_every": 2, "train.eval_every": 2, "train.liveness_s": 0.0}
    config = RunConfig().with_values({**SMALL, **changes})
    with watching(config, rank=0, sources={}) as probes:
        train(config, probes)
    step, loss, ppl = (tmp_path / "val.csv").read_text().strip().split(",")
    found = held_out_loss(trained(tmp_path, device="cpu"))
    assert (found["steps"], f"{found['loss']:.6g}", f"{found['ppl']:.6g}") == (int(step), loss, ppl)


def test_text_is_what_generate_gives_and_follows_its_seed(a_run, capsys):
    folder, _ = a_run
    found = trained(folder, device="cpu")
    ids = torch.tensor([list(b"def ")])
    greedy = bytes(generate(found.model, ids, 12, temperature=0.0)[0].tolist()).decode(errors="replace")
    assert text_of(found, "def ", n_new=12, temperature=0.0) == greedy
    assert main(["generate", str(folder), "--prompt", "def ", "--tokens", "12", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == greedy + "\n"
    drawn = [text_of(found, "def ", n_new=12, seed=seed, top_k=40) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_newest_checkpoint_or_the_one_asked_for_is_read(a_run):
    folder, losses = a_run
    for n_steps, which in ((None, 4), (2, 2)):
        found = trained(folder, n_steps=n_steps, device="cpu")
        assert found.n_steps == which
        assert loss_of_the_next_step(found) == pytest.approx(losses[which], rel=1e-6)


def test_a_checkpoint_says_its_configuration_and_an_older_one_takes_the_runs(a_run, tmp_path):
    folder, _ = a_run
    copy = tmp_path / "moved"
    shutil.copytree(folder, copy)
    config = copy / "checkpoints" / "step_00000004" / "config.json"
    written = json.loads(config.read_text())
    assert written["model"]["n_layers"] == 3
    config.unlink()
    with pytest.raises(ConfigError, match=r"no configuration in .*config\.json or .*env\.json"):
        trained(copy)
    (copy / "env.json").write_text(json.dumps({"config": written}))
    assert trained(copy, device="cpu").config.model.n_layers == 3
    written["model"]["n_layers"] = 4
    (copy / "env.json").write_text(json.dumps({"config": written}))
    with pytest.raises(ConfigError, match="step_00000004 does not fit its configuration"):
        trained(copy)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "NOWHERE", "--prompt", "a"], "has no whole checkpoint; give a run's train.out_dir"),
        (["generate", "RUN", "--prompt", "a", "--step", "3"], "has no checkpoint of 3 steps"),
        (["generate", "RUN", "--prompt", ""], "at least one token"),
        (["generate", "RUN", "--prompt", "a", "--temperature", "-1"], "temperature = -1.0 is below zero"),
        (["evaluate", "RUN", "--batches", "0"], "the text has no batch of 4 x 96 tokens"),
    ],
)
def test_what_cannot_be_done_ends_with_status_2_and_a_sentence(a_run, tmp_path, capsys, words, message):
    places = {"RUN": str(a_run[0]), "NOWHERE": str(tmp_path)}
    assert main([places.get(word, word) for word in words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("is_tied", [False, True])
def test_safetensors_hold_the_weights_under_their_names_and_the_configuration(tmp_path, is_tied):
    load_file = pytest.importorskip("safetensors.torch", reason="pip install 'nsa-harness[hf]'").load_file
    run(0, {**LONG, "model.tied_head": is_tied, "train.out_dir": str(tmp_path / "run")})
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "out"), "--device", "cpu"]) == 0
    found = trained(tmp_path / "run", device="cpu")
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == found.config.to_mapping()
    other = Decoder(found.config.model, {})
    missing, unexpected = other.load_state_dict(load_file(tmp_path / "out" / "model.safetensors"), strict=False)
    assert (missing, unexpected) == (["lm_head.weight"] if is_tied else [], [])
    for (name, a), b in zip(found.model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("attention", ["nsa", "dense", "legacy-sequential"])
def test_transformers_loads_what_is_exported_and_gives_the_same_logits(tmp_path, attention):
    transformers = pytest.importorskip("transformers", reason="pip install 'nsa-harness[hf]'")
    import nsa.hf  # noqa: F401 - tells the auto classes

    changes = {"model.attention": attention, "model.n_layers": 1, "train.seq_len": 40, "train.save_every": 2}
    run(0, {**changes, "train.out_dir": str(tmp_path / "run")})
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "out"), "--format", "hf", "--device", "cpu"]) == 0
    found = trained(tmp_path / "run", device="cpu")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    ids = torch.randint(256, (2, 30))
    torch.testing.assert_close(loaded(ids).logits, found.model(ids), rtol=1e-5, atol=1e-5)


def test_an_export_without_its_package_is_refused_with_what_to_install(a_run, tmp_path, capsys, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] in ("safetensors", "transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])
        return real(name, *rest)

    for module in [m for m in sys.modules if m.startswith(("nsa.hf", "safetensors"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", without)
    for kind, package in (("safetensors", "safetensors"), ("hf", "transformers")):
        assert main(["export", str(a_run[0]), str(tmp_path), "--format", kind]) == 2
        assert f"--format {kind} needs {package}; pip install 'nsa-harness[hf]'" in capsys.readouterr().err
