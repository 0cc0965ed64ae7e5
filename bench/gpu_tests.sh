#!/usr/bin/env bash
# Runs every test marked gpu on GPU 0, beside bench/attention.py on GPU 1 if there are two, and keeps what they print:
#     [LIMIT_S=420] bench/gpu_tests.sh RESULTS_FOLDER [alone]
# "alone" leaves GPU 1 to others.
# Needs torch with CUDA, pytest, pytest-xdist, hypothesis and, for the comparison with it, fla-core and einops.
set -u
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD:${PYTHONPATH:-} CUBLAS_WORKSPACE_CONFIG=:4096:8 TORCHINDUCTOR_CACHE_DIR=$(mktemp -d)
wanted="tests/gpu tests/nsa -m gpu -q --no-header -p no:cacheprovider -p no:benchmark"
nvidia-smi -L
workers=$(($(nproc) * 3 / 4))
if [ "$workers" -gt 12 ]; then workers=12; fi  # 24 of them do not fit into 80 GB

tests() { CUDA_VISIBLE_DEVICES=0 timeout "${LIMIT_S:-420}" python3 -m pytest $wanted -k "$2" "${@:3}" >"$out/tests-$1.txt" 2>&1; }
# Those beyond 32 bits take 58 GB: before the others, not beside them.
(tests far "32_bit and not cudnn"; far=$?; tests main "not 32_bit and not cudnn" -n "$workers" --dist worksteal --durations 12 && exit $far) & parts=($!)
tests cudnn "cudnn" & parts+=($!)  # alone: cuDNN has ended processes
if [ "${2:-}" != alone ] && [ "$(nvidia-smi -L | wc -l)" -gt 1 ]; then
  CUDA_VISIBLE_DEVICES=1 timeout 400 python3 bench/attention.py --rep-ms 60 --json "$out/attention.json" --md "$out/attention.md" 2>"$out/attention.log" &
fi
status=0
for part in "${parts[@]}"; do wait "$part" || status=1; done
wait
for part in main far cudnn; do
  echo "== $part"; grep -E "^(FAILED|ERROR)" "$out/tests-$part.txt" | cut -c1-260 | head -40; tail -n 1 "$out/tests-$part.txt"
done
exit $status  # 1 if any test failed, or did not end in time
