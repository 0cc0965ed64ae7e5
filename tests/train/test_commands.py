"""Every command of the documented table of the original reports, parsed as a shell would, and run in small."""

import re
import shlex
from pathlib import Path

import pytest
from rank_work import started

ROOT = Path(__file__).parents[2]
COMMANDS = ROOT / "docs" / "original-commands.md"
TINY = (
    "model.n_layers=1 model.dim=32 model.n_heads=4 model.n_kv_groups=2 model.d_k=8 model.d_v=8 train.seq_len=64 "
    "train.batch_size=2 train.steps=1 train.warmup_steps=0 train.device=cpu train.out_dir="
)


def commands():
    """The commands of the right column."""
    section = COMMANDS.read_text().partition("## The original reports' commands")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith(("| `", "| gradients"))]
    return [command for row in rows for command in re.findall(r"`([^`]+)`", row[-1]) if " " in command]


def test_the_table_has_every_kind_of_command_that_the_reports_used():
    text = "\n".join(commands())
    assert len(commands()) == 14
    for part in ("train_showcase", "m7c_125m_2xa100_shake", "m7c_125m_2xa100_production", "m7c_125m_1xa100_production"):
        assert part in text
    for part in ("fsdp1", "manual", "fineweb-edu", "TRACE_GRADS", "FORCE_BRANCH", "SAFE_MODE", "TinyLM", "NCCL_P2P"):
        assert part in text


@pytest.mark.parametrize("command", [command for command in commands() if not command.startswith("python")])
def test_every_command_of_the_table_runs(ranks, tmp_path, command):
    """Those of python run as they are printed in ``test_readme``."""
    words = shlex.split(command)
    environ = dict(word.split("=", 1) for word in words if re.match(r"[A-Z0-9_]+=", word))
    program = words[len(environ) :]
    is_parallel = program[0] == "torchrun"
    arguments = program[program.index("nsa.train") + 1 :] if is_parallel else program[1:]
    assert is_parallel or program[0] == "nsa-train"
    (tmp_path / "0.jsonl").write_text('{"text": "' + "a document for the stream " * 20 + '"}\n')
    more = TINY + (f" train.data_path={tmp_path}" if "fineweb-edu" in command else "")
    job = (environ, arguments[0], [*arguments[2:], more])
    answers = ranks.run(started, *job) if is_parallel else [started(0, *job)]
    for mode, losses, substituted in answers:
        assert (len(losses), substituted) == (1, "")
        assert 5.0 < losses[0] < 6.0
        assert (mode != "single") == is_parallel
