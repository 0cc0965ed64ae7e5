#!/usr/bin/env bash
# Training on one GPU of compute capability 9.0, sparse beside dense, in about three minutes:
#     [BEFORE=another tree of this repository] bench/training_gpu.sh RESULTS_FOLDER [options of bench/profile_training.py ...]
# The tests of what a step runs beside attention first, then steps and their kernels; with BEFORE that tree's before
# this one's.
set -u
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
before=$([ -n "${BEFORE:-}" ] && cd "$BEFORE" && pwd)
cd "$(dirname "$0")/.."
here=$PWD
others=${PYTHONPATH:-}
nvidia-smi -L
PYTHONPATH=$here:$others timeout 150 python3 -m pytest tests/gpu/test_norm.py tests/gpu/test_train_graphs.py -q --no-header \
  -p no:cacheprovider -p no:benchmark -n 8 >"$out/tests.txt" 2>&1
status=$?
tail -n 15 "$out/tests.txt" | cut -c1-300
for tree in ${before:+"$before"} "$here"; do
  name=$([ "$tree" = "$here" ] && echo now || echo before)
  (cd "$tree" && PYTHONPATH=$tree:$others timeout 250 python3 bench/profile_training.py "$out/$name" "$@" >"$out/$name.log" 2>&1) || status=1
  grep -E "ms a step|^\[|^\| (nsa|dense)" "$out/$name.log"
done
exit $status
