#!/usr/bin/env bash
# What two GPUs are asked for, in one command: parts on the first GPU beside parts on the second, then parts on both.
#     bench/gpu_two.sh RESULTS_FOLDER COMMIT "tests law one" "profile tiles" "bullet nccl compare incident_001"
# Any list may be empty; the parts and their limits in seconds are below. What each printed, and every result smaller than
# 6 MB, goes to RESULTS_FOLDER/kept.tgz every 20 s, so that a lost machine loses little.
# Needs torch with CUDA, and on PATH a python3 that has the harness's dependencies, pytest with xdist and hypothesis.
set -u
out=$(mkdir -p "$1" && cd "$1" && pwd) commit=$2
work=$(mktemp -d)
cd "$(dirname "$0")/.."
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD
began=$SECONDS
keep() {
  (cd "$work" && find . -type f -size -6M ! -name kept.tgz -print0 | tar -czf kept.tgz --null -T - 2>/dev/null); cp "$work/kept.tgz" "$out/kept.tgz"; }
part() {
  local limit command
  case $1 in
    tests) limit=500 command=(bench/gpu_tests.sh "$work/tests" alone) ;;
    law) limit=250 command=(python3 bench/diagnosis_gpu.py "$work/law" --part law --budget-s 235) ;;
    one) limit=170 command=(python3 bench/diagnosis_gpu.py "$work/one" --part one --budget-s 160) ;;
    blind_one) limit=130 command=(python3 -m harness selftest gpu-spin gpu-compile --gpu --rounds 2 --no-limits --keep "$work/blind") ;;
    blind_two) limit=160 command=(python3 -m harness selftest nccl-{skip,shape,spin,unused,lock,stopped,killed} --gpu --no-limits --keep "$work/blind") ;;
    thrash) limit=85 command=(python3 bench/diagnosis_gpu.py "$work/thrash" --part one --names gpu-thrash --budget-s 75) ;;
    profile) limit=110 command=(python3 bench/profile_training.py "$work/profile" --commit "$commit" --budget-s 95) ;;
    stacks) limit=70 command=(python3 bench/native_stacks.py --device cuda --json "$work/native_stacks.json" --md "$work/native_stacks.md") ;;
    tiles) limit=170 command=(python3 bench/tiles.py "$work/tiles.json") ;;
    attention) limit=400 command=(python3 bench/attention.py --rep-ms 60 --json "$work/attention.json" --md "$work/attention.md") ;;
    bullet) limit=210 command=(python3 bench/diagnosis_gpu.py "$work/bullet" --part bullet --budget-s 200) ;;
    nccl) limit=130 command=(python3 bench/train_nccl.py "$work/nccl") ;;
    compare) limit=120 command=(python3 bench/training.py "$work/train" --parts compare alone --budget-s 110 --commit "$commit") ;;
    production) limit=340 command=(python3 bench/training.py "$work/production" --parts production --budget-s 330 --commit "$commit") ;;
    incident_001) limit=185 command=(python3 -m harness matrix run matrices/incident_001.yaml --runs "$work/001" --executor local --budget 165s) ;;
    incident_004) limit=420 command=(python3 -m harness matrix run matrices/incident_004.yaml --runs "$work/004" --executor local --budget 400s) ;;
    *) echo "no part $1" >&2; return 2 ;;
  esac
  timeout -s INT -k 20 "$limit" "${command[@]}" >"$work/$1.txt" 2>"$work/$1.log"
  echo "== $1: exit $? at $((SECONDS - began)) s"; tail -n 6 "$work/$1.txt" | cut -c1-200
}
nvidia-smi -L
(while sleep 20; do keep; done) & keeper=$!
(export CUDA_VISIBLE_DEVICES=0; for name in $3; do part "$name"; done) & lanes=($!)
(export CUDA_VISIBLE_DEVICES=1; for name in $4; do part "$name"; done) & lanes+=($!)
wait "${lanes[@]}"
for name in $5; do part "$name"; done
kill "$keeper"; keep
