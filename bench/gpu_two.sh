#!/usr/bin/env bash
# What needs two GPUs, one thing after the other, in at most LIMIT seconds; results in a folder:
#     bench/gpu_two.sh RESULTS_FOLDER PYTHON COMMIT [LIMIT]
# The training table, then the diagnosis of known faults; beside them the GPU tests that say whether the host waits and, on
# spare cores, the suite of known faults without GPUs, what telemetry costs, the loss curve of real text.
set -u
out=$(mkdir -p "$1" && cd "$1" && pwd) python=$2 commit=$3 limit=${4:-430}
work=$(mktemp -d)
cd "$(dirname "$0")/.."
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD
keep() { # only what is small enough to be worth its way back
  (cd "$work" && find . -type f -size -3M ! -name kept.tgz -print0 | tar -czf kept.tgz --null -T - 2>/dev/null); cp "$work/kept.tgz" "$out/lanes.tgz"; }

training() { timeout 250 "$python" bench/training.py "$work/training" --parts compare alone long --budget-s 238 --commit "$commit" >"$work/training.txt" 2>&1; }
diagnosis() { timeout 188 "$python" bench/diagnosis_gpu.py "$work/diagnosis" --budget-s 178 >"$work/diagnosis.txt" 2>&1; }
tests() { CUDA_VISIBLE_DEVICES=0 timeout 60 "$python" -m pytest tests/nsa/test_gpu.py -m gpu -q --no-header -p no:cacheprovider -k "never_wait or peak_memory" >"$work/tests.txt" 2>&1; }
spare() {
  CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 nice -n 10 timeout -s INT -k 25 380 "$python" -m harness selftest --rounds 10 --jobs 14 --keep "$work/selftest" >"$work/selftest.txt" 2>"$work/selftest.progress" &
  nice -n 2 "$python" bench/telemetry.py --rounds 5 --steps 23 --md "$work/telemetry.md" --json "$work/telemetry.json" 2>"$work/telemetry.txt" &
  nice -n 2 "$python" bench/learns.py "$work/learns.svg" --steps 150 >"$work/learns.txt" 2>&1 &
  wait
}
nvidia-smi -L
spare &
(training; diagnosis) & both=$!
(sleep 200; tests) &
end=$((SECONDS + limit))
while kill -0 $both 2>/dev/null; do
  sleep 5
  if ((SECONDS % 30 < 5)); then keep; fi
  if ((SECONDS > end)); then echo "out of time"; break; fi
done
keep
for part in training diagnosis tests selftest; do echo "== $part"; tail -n 12 "$work/$part.txt" | cut -c1-180; done
