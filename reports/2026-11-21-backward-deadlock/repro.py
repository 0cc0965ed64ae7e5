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
  "timeout_s": 600.0
 },
 "train": {
  "accumulate": 1,
  "batch_size": 1,
  "checkpoint_layers": "",
  "checkpointing": "none",
  "data": "bytes",
  "data_path": "",
  "detect_anomaly": false,
  "deterministic": false,
  "device": "cpu",
  "grad_clip": 1.0,
  "log_every": 1,
  "lr": 0.003,
  "out_dir": "",
  "precision": "fp32",
  "precision_mode": "autocast",
  "resume": false,
  "save_every": 0,
  "schedule": "constant",
  "seed": 1337,
  "seq_len": 256,
  "steps": 5,
  "threads": 1,
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
    from harness.core.world import Place
    from harness.specimens.catalog import SPECIMENS
    from harness.worker.fault import FaultProbe

    trial = from_json(Trial, json.loads(TRIAL))
    place = Place(rank=int(os.environ.get("RANK", "0")), world=int(os.environ.get("WORLD_SIZE", "1")))
    folder = Path(tempfile.mkdtemp())
    fault = FaultProbe(SPECIMENS.load(trial.fault.specimen), trial=trial, trial_dir=folder, place=place)
    fault.start()
    return [fault]


TRIAL = r"""{"target": "nsa", "point": {"settings": [["n_layers", 5]]}, "repeat": 0, "role": "search", "config": {"model": {"decoder": "tiny", "vocab": 256, "dim": 128, "n_layers": 5, "n_heads": 8, "n_kv_groups": 2, "d_k": 16, "d_v": 16, "l": 16, "d": 8, "l_slc": 16, "n": 6, "w": 64, "attention": "nsa", "phi": "mlp", "branches": "all", "gate": "learned", "gate_grad": true, "share_kv": false, "rope_base": 10000.0, "rope_scale": 1.0, "tied_head": false}, "kernels": {"policy": "exact", "compressed": "auto", "scores": "auto", "selected": "auto", "window": "auto", "combine": "auto", "sdpa": "any"}, "train": {"steps": 5, "seq_len": 256, "batch_size": 1, "accumulate": 1, "lr": 0.003, "schedule": "constant", "warmup_steps": 0, "weight_decay": 0.01, "grad_clip": 1.0, "seed": 1337, "data": "bytes", "data_path": "", "threads": 1, "precision": "fp32", "precision_mode": "autocast", "device": "cpu", "checkpointing": "none", "checkpoint_layers": "", "deterministic": false, "detect_anomaly": false, "out_dir": "", "save_every": 0, "resume": false, "log_every": 1}, "parallel": {"mode": "single", "backend": "auto", "timeout_s": 600.0, "allow_single": false, "allow_known_bad": false, "find_unused_parameters": false, "static_graph": false, "broadcast_buffers": true, "gradient_as_bucket_view": false, "bucket_cap_mb": 25, "compress": "none"}}, "seed": 2062297686, "code": "0.1.0+882e8b3266f8", "machine": "AMD EPYC|2|2.13.0+cpu|3.11.7|6.18.44|", "fault": {"specimen": "backward-deadlock", "conditions": [{"name": "n_layers", "op": ">=", "value": 5}]}, "env": [], "budget": {"startup": {"seconds": 120.0, "source": "default: no comparable trial has passed yet"}, "stall": {"seconds": 4.0, "source": "learned: 10 x 0.0164 s, longest silence of 4 passed trials at n_layers 1..4, at least 4 s"}, "total": {"seconds": 30.0, "source": "learned: 5 x 0.755 s, whole time of 4 passed trials at n_layers 1..4, and 20 s to watch a silence, at least 30 s"}, "soft": false}, "prediction": {"total_s": 0.6353883170008885, "total_high_s": 0.7549813981386863, "silence_s": 0.014028245500412595, "silence_high_s": 0.016449943054523603, "basis": "4 passed trials at n_layers 1..4"}, "success": null, "python": null, "tree": null, "key": "9727de8fc659d9f1"}"""

BEGAN = time.monotonic()
if __name__ == "__main__":
    train(RunConfig.from_mapping(CONFIG), [Progress(), *planted()])
