#!/usr/bin/env bash
# Decoding on one GPU of compute capability 9.0: its tests, then its times, in about four minutes:
#     [BEFORE=another tree of this repository] [PLANS=yes] bench/decode_gpu.sh RESULTS_FOLDER [options of bench/decode.py ...]
# With BEFORE that tree's times come first, with PLANS every plan's of bench/decode_plans.py.
# Kernels are compiled beside the tests, many at a time, so that what is timed finds them; one layer each, for with more
# they do not fit beside each other into 80 GB.
set -u
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
before=$([ -n "${BEFORE:-}" ] && cd "$BEFORE" && pwd)
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD:${PYTHONPATH:-}
nvidia-smi -L
for batch in 1 2 4 8 16 32 64; do
  timeout 100 python3 bench/decode.py "$(mktemp -d)" --batches $batch --lengths 8192 16384 --layers 1 --no-model >/dev/null 2>&1 &
done
for part in ${PLANS:+0 1 2 3 4 5}; do
  timeout 130 python3 bench/decode_plans.py "$out/plans.json" --warm "$part" 6 >/dev/null 2>&1 &
done
timeout 130 python3 -m pytest tests/gpu/test_decode.py -q --no-header -p no:cacheprovider -p no:benchmark -n 8 >"$out/tests.txt" 2>&1
status=$?
wait
tail -n 30 "$out/tests.txt" | cut -c1-300
if [ -n "$before" ]; then
  (cd "$before" && PYTHONPATH=$before:${PYTHONPATH#*:} timeout 100 python3 bench/decode.py "$out/before" "$@" >"$out/before.log" 2>&1) || status=1
  tail -n 8 "$out/before.log" | cut -c1-300
fi
timeout 170 python3 bench/decode.py "$out" "$@" 2>"$out/decode.log" || status=1
tail -n 5 "$out/decode.log" | cut -c1-300
if [ -n "${PLANS:-}" ]; then
  timeout 200 python3 bench/decode_plans.py "$out/plans.json" 2>&1 | cut -c1-400 || status=1
fi
exit $status
