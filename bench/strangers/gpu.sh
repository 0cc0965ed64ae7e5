#!/usr/bin/env bash
# The instrument on one GPU, on programs that it has never seen; nine minutes:
#     bench/strangers/gpu.sh RESULTS_FOLDER [SEED]
# A loop over tokens with a limit of 60 s and then alone, as long as it takes; 40 cases of the seed, five at a time.
# Wheels of what the machine lacks are taken from .wheels: see offline.sh.
set -u
out=$(mkdir -p "$1" && cd "$1" && pwd)
seed=${2:-1}
cd "$(dirname "$0")/../.."
. bench/strangers/offline.sh
nvidia-smi -L
loop="$venv/bin/python bench/strangers/token_loop.py --layers 12 --tokens 2048 --heads 96 --width 768 --device cuda"
timeout 150 "$venv/bin/nsa-harness" run --limit 60s --runs "$out/runs" -- $loop >"$out/token-loop.txt" 2>&1
sed -n '/^SLOW/,/^where/p;/^HANG/,/^where/p;/^UNRESOLVED/,/^where/p' "$out/token-loop.txt"
(timeout 400 $loop >"$out/token-loop-alone.txt" 2>&1) &
alone=$!
timeout 390 "$venv/bin/python" -m bench.strangers --cases 40 --seed "$seed" --jobs 5 --gpus 1 --wall 60 --minutes 6.4 \
  --evidence "$venv/not-right" --json "$out/strangers.json" >"$out/strangers.txt" 2>&1
tail -n 16 "$out/strangers.txt"
grep -v -E " right | void " "$out/strangers.txt" | head -30
wait $alone
cat "$out/token-loop-alone.txt"
(cd "$venv" && find not-right -type f -size -2M -print0 | tar -czf "$out/not-right.tgz" --null -T -)
rm -rf "$out/runs"
