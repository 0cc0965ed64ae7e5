#!/usr/bin/env bash
# The whole bench on a machine of many cores without a network: LANES (8) lanes of two cores each, three cases at a time in each.
#     bench/strangers/many_cores.sh RESULTS_FOLDER SEED [CASES] [LANES] [MINUTES]
# What runs on a GPU is not asked for. Wheels: see offline.sh. RESULTS_FOLDER gets the card, JSON and an archive of the
# smallest files of everything that was not right.
set -u
out=$(mkdir -p "$1" && cd "$1" && pwd)
seed=$2 cases=${3:-300} lanes=${4:-8} minutes=${5:-9}
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
. bench/strangers/offline.sh
export PYTHONUNBUFFERED=1 CUDA_VISIBLE_DEVICES=
"$venv/bin/python" -m bench.strangers --cases "$cases" --seed "$seed" --jobs $((3 * lanes)) --lanes "$lanes" --minutes "$minutes" \
  --wall 100 --evidence "$work/cases" --json "$out/strangers.json" >"$out/strangers.txt" 2>&1
(cd "$work" && find cases -type f -printf '%s %p\n' | sort -n | awk '{ s += $1 } s < 4e7' | cut -d' ' -f2- \
  | tar -czf "$out/not-right.tgz" --ignore-failed-read -T - 2>/dev/null)
cut -c1-300 "$out/strangers.txt"
