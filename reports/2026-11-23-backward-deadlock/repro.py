"""n_layers=5: HANG (deadlock), without the harness.

    python repro.py

It hangs until its limit with a thread in acquire_forever. Needs torch and the trainer that was tested. After LIMIT_S seconds it prints the
stack of every thread and ends.
"""

import faulthandler
import json
import os
import sys
import time

LIMIT_S = 27
CONFIG = json.loads("""
{
 "kernels": {
  "combine": "auto",
  "compressed": "auto",
  "policy": "exact",
  "scores": "auto",
  "sdpa": "any",
  "selected": "auto",
  "window": "auto"
 },
 "model": {
  "attention": "nsa",
  "branches": "all",
  "d": 8,
  "d_k": 16,
  "d_v": 16,
  "decoder": "tiny",
  "dim": 128,
  "gate": "learned",
  "gate_grad": true,
  "l": 16,
  "l_slc": 16,
  "n": 6,
  "n_heads": 8,
  "n_kv_groups": 2,
  "n_layers": 5,
  "phi": "mlp",
  "rope_base": 10000.0,
  "rope_scale": 1.0,
  "share_kv": false,
  "tied_head": false,
  "vocab": 256,
  "w": 64
 },
 "parallel": {
  "allow_known_bad": false,
  "allow_single": false,
  "backend": "auto",
  "broadcast_buffers": true,
  "bucket_cap_mb": 25,
  "compress": "none",
  "find_unused_parameters": false,
  "gradient_as_bucket_view": false,
  "mode": "single",
  "static_graph": false,
  "timeout_s": 600.0,
  "world": 0
 },
 "train": {
  "accumulate": 1,
  "batch_size": 1,
  "census": 0,
  "checkpoint_layers": "",
  "checkpointing": "none",
  "compile": "off",
  "cuda_graphs": "off",
  "data": "bytes",
  "data_path": "",
  "detect_anomaly": false,
  "deterministic": false,
  "device": "cpu",
  "documents": false,
  "eval_batches": 4,
  "eval_every": 0,
  "grad_clip": 1.0,
  "liveness_s": 2.0,
  "loader_timeout_s": 60.0,
  "log_every": 1,
  "lr": 0.003,
  "mem_every": 0,
  "out_dir": "",
  "precision": "fp32",
  "precision_mode": "autocast",
  "prefetch": 2,
  "resume": false,
  "save_every": 0,
  "schedule": "constant",
  "seed": 1337,
  "seq_len": 256,
  "shards": 0,
  "steps": 5,
  "synthetic_on_fail": false,
  "tensorboard": true,
  "threads": 1,
  "tokenizer": "byte",
  "tokenizer_path": "",
  "trace_buckets": false,
  "trace_grads": false,
  "trace_modules": false,
  "val_path": "",
  "warmup_steps": 0,
  "weight_decay": 0.01
 }
}
""")
faulthandler.dump_traceback_later(LIMIT_S, exit=True)

from nsa.config import RunConfig  # noqa: E402
from nsa.train.probe import NullProbe  # noqa: E402
from nsa.train.trainer import train  # noqa: E402


class Progress(NullProbe):
    """Says where training is, with the seconds since the start, so that slow can be told from hung."""

    def mark(self, *, phase, edge, step, detail=None):
        sys.stderr.write(f"[{time.monotonic() - BEGAN:.1f} s] step {step} {phase} {edge}\n")
        sys.stderr.flush()


def planted():
    """The fault that was planted on purpose; it is all that is taken from the harness."""
    import tempfile
    from pathlib import Path

    from harness.core.codec import from_json
    from harness.core.trial import Trial
    from harness.worker.world import Place
    from harness.specimens.catalog import SPECIMENS
    from harness.worker.fault import FaultProbe

    trial = from_json(Trial, json.loads(TRIAL))
    place = Place(rank=int(os.environ.get("RANK", "0")), world=int(os.environ.get("WORLD_SIZE", "1")))
    folder = Path(tempfile.mkdtemp())
    fault = FaultProbe(SPECIMENS.load(trial.fault.specimen), trial=trial, trial_dir=folder, place=place)
    fault.start()
    return [fault]


TRIAL = r"""{"target": "nsa", "point": {"settings": [["n_layers", 5]]}, "repeat": 0, "role": "search", "config": {"model": {"decoder": "tiny", "vocab": 256, "dim": 128, "n_layers": 5, "n_heads": 8, "n_kv_groups": 2, "d_k": 16, "d_v": 16, "l": 16, "d": 8, "l_slc": 16, "n": 6, "w": 64, "attention": "nsa", "phi": "mlp", "branches": "all", "gate": "learned", "gate_grad": true, "share_kv": false, "rope_base": 10000.0, "rope_scale": 1.0, "tied_head": false}, "kernels": {"policy": "exact", "compressed": "auto", "scores": "auto", "selected": "auto", "window": "auto", "combine": "auto", "sdpa": "any"}, "train": {"steps": 5, "seq_len": 256, "batch_size": 1, "accumulate": 1, "lr": 0.003, "schedule": "constant", "warmup_steps": 0, "weight_decay": 0.01, "grad_clip": 1.0, "seed": 1337, "data": "bytes", "data_path": "", "documents": false, "tokenizer": "byte", "tokenizer_path": "", "shards": 0, "prefetch": 2, "loader_timeout_s": 60.0, "synthetic_on_fail": false, "eval_every": 0, "eval_batches": 4, "val_path": "", "threads": 1, "precision": "fp32", "precision_mode": "autocast", "device": "cpu", "checkpointing": "none", "checkpoint_layers": "", "compile": "off", "cuda_graphs": "off", "deterministic": false, "detect_anomaly": false, "trace_grads": false, "trace_modules": false, "trace_buckets": false, "census": 0, "mem_every": 0, "tensorboard": true, "liveness_s": 2.0, "out_dir": "", "save_every": 0, "resume": false, "log_every": 1}, "parallel": {"mode": "single", "world": 0, "backend": "auto", "timeout_s": 600.0, "allow_single": false, "allow_known_bad": false, "find_unused_parameters": false, "static_graph": false, "broadcast_buffers": true, "gradient_as_bucket_view": false, "bucket_cap_mb": 25, "compress": "none"}}, "seed": 2062297686, "code": "0.1.0+d7478cec8375 (885840a0d1e8)", "machine": "AMD EPYC|2|2.13.0+cpu|3.11.7|6.18.44|", "fault": {"specimen": "backward-deadlock", "conditions": [{"name": "n_layers", "op": ">=", "value": 5}]}, "env": [], "budget": {"startup": {"seconds": 120.0, "source": "default: no comparable trial has passed yet"}, "stall": {"seconds": 4.0, "source": "learned: 10 x 0.221 s, longest silence of 4 passed trials at n_layers 1..4, at least 4 s"}, "total": {"seconds": 34.07842692489932, "source": "learned: 5 x 2.82 s, whole time of 4 passed trials at n_layers 1..4, and 20 s to watch a silence"}, "soft": false}, "prediction": {"total_s": 1.5202259380012038, "total_high_s": 2.815685384979864, "silence_s": 0.07378580499971577, "silence_high_s": 0.2213574149991473, "basis": "4 passed trials at n_layers 1..4", "beyond": 1.25, "node_s": 0.00025047032810346067}, "success": null, "python": null, "tree": null, "key": "3ad287ac2f287bac"}"""

BEGAN = time.monotonic()
if __name__ == "__main__":
    train(RunConfig.from_mapping(CONFIG), [Progress(), *planted()])
