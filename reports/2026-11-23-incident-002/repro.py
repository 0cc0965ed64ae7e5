"""ckpt=reentrant closure=bound find_unused=True static_graph=False: CRASH (ready-twice), without the harness.

    torchrun --standalone --nproc_per_node=2 repro.py

It ends with RuntimeError (Expected to mark a variable ready only o ..). Needs torch and the trainer that was tested. After LIMIT_S seconds it prints the
stack of every thread and ends.
"""

import faulthandler
import json
import os
import sys
import time

LIMIT_S = 30
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
  "dim": 32,
  "gate": "learned",
  "gate_grad": true,
  "l": 8,
  "l_slc": 8,
  "n": 3,
  "n_heads": 2,
  "n_kv_groups": 1,
  "n_layers": 12,
  "phi": "mlp",
  "rope_base": 10000.0,
  "rope_scale": 1.0,
  "share_kv": false,
  "tied_head": false,
  "vocab": 256,
  "w": 16
 },
 "parallel": {
  "allow_known_bad": true,
  "allow_single": false,
  "backend": "gloo",
  "broadcast_buffers": true,
  "bucket_cap_mb": 25,
  "compress": "none",
  "find_unused_parameters": true,
  "gradient_as_bucket_view": false,
  "mode": "ddp",
  "static_graph": false,
  "timeout_s": 600.0,
  "world": 2
 },
 "train": {
  "accumulate": 1,
  "batch_size": 2,
  "census": 0,
  "checkpoint_layers": "",
  "checkpointing": "reentrant",
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
  "seq_len": 32,
  "shards": 0,
  "steps": 2,
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
os.environ['TORCH_DISTRIBUTED_DEBUG'] = 'INFO'
faulthandler.dump_traceback_later(LIMIT_S, exit=True)

from nsa.config import RunConfig  # noqa: E402
from nsa.train.probe import NullProbe  # noqa: E402
from nsa.train.trainer import train  # noqa: E402


class Progress(NullProbe):
    """Says where training is, with the seconds since the start, so that slow can be told from hung."""

    def mark(self, *, phase, edge, step, detail=None):
        sys.stderr.write(f"[{time.monotonic() - BEGAN:.1f} s] step {step} {phase} {edge}\n")
        sys.stderr.flush()


BEGAN = time.monotonic()
if __name__ == "__main__":
    train(RunConfig.from_mapping(CONFIG), [Progress()])
