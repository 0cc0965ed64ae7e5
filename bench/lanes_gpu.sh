#!/usr/bin/env bash
# Cells side by side on leased GPUs, then a stranger on one of them; the journals and what was printed go to a folder:
#     bench/lanes_gpu.sh RESULTS_FOLDER
# Needs two GPUs, the harness with its dependencies, and nvidia-ml-py.
set -u
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
run() { timeout 170 python -m harness matrix run matrices/gpu_lanes.yaml --runs "$out/runs" --executor local "$@"; }

run >"$out/lanes.txt" 2>"$out/lanes.log"; echo "side by side: exit $?"
python -m harness log --runs "$out/runs" >"$out/journal.txt"
grep -E "decision|record" "$out/journal.txt"

python -c "
import time, torch
held = torch.zeros(1 << 28, device='cuda:0')
torch.cuda.synchronize(); print('held', flush=True); time.sleep(60)" >"$out/stranger.txt" &
stranger=$!
until grep -q held "$out/stranger.txt"; do sleep 0.2; done
run --cell n_layers=2,parallel=ddp >"$out/stranger_run.txt" 2>"$out/stranger_run.log"; echo "with a stranger: exit $? (6 is right)"
kill "$stranger"; wait "$stranger" 2>/dev/null
grep -hE "INFRA|stranger" "$out/stranger_run.log" "$out/stranger_run.txt" | head -4
