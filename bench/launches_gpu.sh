#!/usr/bin/env bash
# Two trees of this repository on one GPU of compute capability 9.0, for a change of how kernels are launched or made:
#     [TREES=folder of peers' trees] [TESTS=words of pytest -k] [PARTS="of bench/hopper_check.py"] \
#         [SIZES="heads-tokens-calls ..."] \
#         bench/launches_gpu.sh RESULTS_FOLDER OTHER_TREE [options of bench/peers.py ...]
# Tests of this tree's kernels side by side, parts of bench/hopper_check.py, then of both trees the host's time and each
# kernel's (bench/host_time.py) and whole rows (bench/peers.py; of this tree beside flash_nsa where TREES has it).
# Needs what bench/gpu_tests.sh needs. About five minutes.
set -u
out=$(mkdir -p "$1" && cd "$1" && pwd)
other=$(cd "$2" && pwd)
shift 2
cd "$(dirname "$0")/.."
here=$PWD
words=${TESTS:-not 32_bit and not cudnn and not decode and not leases and not invariants and not graphs}
nvidia-smi -L
python3 -c "import torch, triton; print(torch.__version__, triton.__version__)"
status=0
in_tree() { (cd "$1" && timeout 100 env PYTHONPATH="$1:${PYTHONPATH:-}" python3 "${@:2}"); }
host() { in_tree "$1" bench/host_time.py --heads "$2" --tokens "$3" --calls "$4"; }
# Beside the tests, and before anything is timed, what will be timed is compiled.
for tree in "$other" "$here"; do for heads in 16 64; do host "$tree" $heads 8192 2 >/dev/null 2>&1 & done; done
PYTHONPATH=$here:${PYTHONPATH:-} timeout 150 python3 -m pytest tests/gpu -q --no-header -p no:cacheprovider \
  -p no:benchmark -k "$words" -n $(($(nproc) - 2)) --dist worksteal --durations 5 >"$out/tests.txt" 2>&1 || status=1
grep -E "^(FAILED|ERROR)" "$out/tests.txt" | cut -c1-260 | head -20
tail -n 8 "$out/tests.txt"
wait
for part in ${PARTS:+"$PARTS"}; do
  in_tree "$here" bench/hopper_check.py "$out/check" --parts "$part" >"$out/check.txt" 2>&1 || status=1
  grep "^|" "$out/check.txt"
done
for tree in "$other" "$here"; do
  name=$([ "$tree" = "$here" ] && echo now || echo before)
  for size in ${SIZES:-16-2048-100 16-8192-100 16-65536-3 64-65536-3}; do
    host "$tree" ${size//-/ } >"$out/host-$size-$name.txt" 2>&1 || status=1
  done
done
for file in "$out"/host-*.txt; do
  echo "$(basename "$file" .txt): $(grep -E "host [0-9]|in all" "$file" | tr -s ' ' | tr '\n' ' ')"
done
for tree in "$other" "$here"; do
  name=$([ "$tree" = "$here" ] && echo now || echo before)
  only=ours
  [ "$name" = now ] && [ -n "${TREES:-}" ] && only="ours flash_nsa"
  scratch=$(mktemp -d)
  (cd "$tree" && PYTHONPATH="$tree:${PYTHONPATH:-}" python3 bench/peers.py "${TREES:-$scratch}" "$scratch" --only $only \
    --budget-s 170 "$@" >"$out/peers-$name.txt" 2>&1) || status=1
  cp "$scratch/peers.json" "$out/peers-$name.json" 2>/dev/null
  echo "== $name"
  grep -E "^\| (ours|flash|64|16)" "$out/peers-$name.txt"
done
exit $status
