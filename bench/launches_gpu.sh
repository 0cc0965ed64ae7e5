#!/usr/bin/env bash
# Two trees of this repository on one GPU of compute capability 9.0, for a change of how kernels are launched:
#     [TREES=folder of peers' trees] bench/launches_gpu.sh RESULTS_FOLDER OTHER_TREE [seconds for the tests]
# The tests of kernels of this tree side by side, then of both trees the host's time and the GPU's (bench/host_time.py)
# and whole rows (bench/peers.py; of this tree beside flash_nsa where TREES has it). Needs what bench/gpu_tests.sh needs.
set -u
out=$(mkdir -p "$1" && cd "$1" && pwd)
other=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."
here=$PWD
nvidia-smi -L
python3 -c "import torch, triton; print(torch.__version__, triton.__version__)"
status=0
if [ "${3:-200}" != 0 ]; then
  PYTHONPATH=$here timeout "${3:-200}" python3 -m pytest tests/gpu -q --no-header -p no:cacheprovider -p no:benchmark \
    -k "not 32_bit and not cudnn and not decode and not leases and not invariants and not graphs" \
    -n $(($(nproc) - 2)) --dist worksteal --durations 5 >"$out/tests.txt" 2>&1 || status=1
  grep -E "^(FAILED|ERROR)" "$out/tests.txt" | cut -c1-260 | head -20
  tail -n 8 "$out/tests.txt"
fi
sizes=("16 8192" "16 2048" "16 65536" "64 65536")
for tree in "$other" "$here"; do
  for size in "${sizes[@]}"; do
    (cd "$tree" && timeout 60 env PYTHONPATH="$tree" python3 bench/host_time.py --heads ${size% *} --tokens ${size#* } \
      >"$out/host-${size/ /-}-$([ "$tree" = "$here" ] && echo now || echo before).txt" 2>&1) || status=1
  done
done
for file in "$out"/host-*.txt; do echo "$(basename "$file" .txt): $(grep -E "host|in all" "$file" | tr -s ' ' | tr '\n' ' ')"; done
for tree in "$other" "$here" "$other" "$here"; do
  name=$([ "$tree" = "$here" ] && echo now || echo before)
  while [ -e "$out/peers-$name.json" ]; do name=$name-again; done
  only=ours
  [ "$name" = now ] && [ -n "${TREES:-}" ] && only="ours flash_nsa"
  scratch=$(mktemp -d)
  (cd "$tree" && env PYTHONPATH="$tree" python3 bench/peers.py "${TREES:-$scratch}" "$scratch" --only $only --budget-s 170 \
    >"$out/peers-$name.txt" 2>&1) || status=1
  cp "$scratch/peers.json" "$out/peers-$name.json" 2>/dev/null
  echo "== $name"; grep -E "^\| (ours|flash|64|16)" "$out/peers-$name.txt"
done
exit $status
