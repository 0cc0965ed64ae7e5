#!/usr/bin/env bash
# What the model is held to on one GPU of compute capability 9.0, in about nine minutes:
#     bench/gpu_model.sh RESULTS_FOLDER
# Packed documents first, alone, because they are timed; then side by side every route against the fp64 oracle, the
# examples as they stand, and every test marked gpu. Needs what bench/gpu_tests.sh needs, and transformers.
set -u
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD:${PYTHONPATH:-}
nvidia-smi -L
status=0
timeout 200 python3 bench/documents.py --device cuda --dtype bfloat16 >"$out/documents.txt" 2>&1 || status=1
bench/gpu_tests.sh "$out" alone >"$out/tests.txt" 2>&1 & tests=$!
timeout 170 python3 bench/oracle_gpu.py >"$out/oracle.txt" 2>&1 || status=1
(cd "$(mktemp -d)" && for example in "$OLDPWD"/examples/{functional,layer,hugging_face}.py; do
  echo "== ${example##*/}"; timeout 100 python3 "$example" || exit 1
done) >"$out/examples.txt" 2>&1 || status=1
wait "$tests" || status=1
tail -n 40 "$out/documents.txt" "$out/oracle.txt" "$out/examples.txt" "$out/tests.txt"
exit $status
