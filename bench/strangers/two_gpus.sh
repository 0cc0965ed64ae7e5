#!/usr/bin/env bash
# The instrument over NCCL on two GPUs, on programs that it has never seen; nine and a half minutes at the longest, or LIMIT_S
# seconds and half a minute:
#     bench/strangers/two_gpus.sh RESULTS_FOLDER SEED [CASES] [ROWS_JOBS] [JOBS] [SKIP]
# The eleven programs of rows.py --gpus 2 but the first SKIP of them (0), ROWS_JOBS at a time (1), beside CASES (60) of
# the seed, JOBS at a time (3); 0 jobs: none. All of them share the cards: the more, the less is a card's utilisation and
# power that of one. What could not end in time is not begun; both say how many were. Wheels: see offline.sh.
# RESULTS_FOLDER gets tables and JSON, and two archives of the folders of everything that was not right: their smallest
# files, 40 MB before they are packed; every 20 s, so that a lost machine loses little.
# CARDS=4: no more than two cases share two cards of so many, and a kernel without end has two for itself.
# GPUS=0 tries the same on a CPU with gloo: does all of this run?
set -u
began=$SECONDS
out=$(mkdir -p "$1" && cd "$1" && pwd)
gpus=${GPUS:-2} limit=${LIMIT_S:-545} seed=$2 cases=${3:-60} rows_jobs=${4:-1} jobs=${5:-3} skip=${6:-0}
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
. bench/strangers/offline.sh
export PYTHONUNBUFFERED=1
if [ "$gpus" -gt 0 ]; then nvidia-smi -L; fi
python() { "$venv/bin/python" "$@"; }
left() { echo "$((limit - SECONDS + began))"; }
minutes() { python -c "print(($(left) - 5) / 60)"; }
keep() {
  local part
  for part in rows cases; do
    [ -d "$work/$part" ] || continue
    (cd "$work" && find "$part" -type f -printf '%s %p\n' | sort -n | awk '{ s += $1 } s < 4e7' | cut -d' ' -f2- \
      | tar -czf "$part.tgz" --ignore-failed-read -T - 2>/dev/null; cp "$part.tgz" "$out/$part-not-right.tgz")
  done
}
lanes=()
if [ "$rows_jobs" -gt 0 ]; then
  timeout -s INT -k 10 "$(left)" "$venv/bin/python" -m bench.strangers.rows --ranked --gpus $gpus --jobs "$rows_jobs" --skip "$skip" \
    --minutes "$(minutes)" --wall 75 --evidence "$work/rows" --md "$out/rows.md" --json "$out/rows.json" >"$out/rows.txt" 2>&1 &
  lanes+=($!)
fi
if [ "$jobs" -gt 0 ] && [ "$cases" -gt 0 ]; then
  timeout -s INT -k 10 "$(left)" "$venv/bin/python" -m bench.strangers --gpus $gpus --cards "${CARDS:-0}" --cases "$cases" --seed "$seed" --jobs "$jobs" \
    --minutes "$(minutes)" --wall 90 --evidence "$work/cases" --json "$out/strangers.json" >"$out/strangers.txt" 2>&1 &
  lanes+=($!)
fi
(while sleep 20; do keep; done) & keeper=$!
for lane in "${lanes[@]}"; do wait "$lane"; done
kill "$keeper"; wait "$keeper" 2>/dev/null
keep
cat "$out/rows.txt" "$out/strangers.txt" 2>/dev/null | cut -c1-400
ls -l "$out"
echo "$((SECONDS - began)) s"
