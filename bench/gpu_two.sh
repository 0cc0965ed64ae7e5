#!/usr/bin/env bash
# Everything that two GPUs are asked for, in two commands of at most ten minutes each; results in a folder:
#     bench/gpu_two.sh RESULTS_FOLDER COMMIT lanes       one GPU each: tests, the law and known faults; profile of a step
#     bench/gpu_two.sh RESULTS_FOLDER COMMIT together    both GPUs: known faults, NCCL, incidents, the training table
# Needs torch with CUDA, and on PATH a python3 that has the harness's dependencies, pytest with xdist and hypothesis.
set -u
out=$(mkdir -p "$1" && cd "$1" && pwd) commit=$2 stage=$3
work=$(mktemp -d)
cd "$(dirname "$0")/.."
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD
began=$SECONDS
keep() { # only what is small enough to be worth its way back
  (cd "$work" && find . -type f -size -6M ! -name kept.tgz -print0 | tar -czf kept.tgz --null -T - 2>/dev/null); cp "$work/kept.tgz" "$out/kept.tgz"; }
part() { # part NAME SECONDS COMMAND...: runs it, keeps what it prints, says how it ended
  local name=$1 limit=$2; shift 2
  timeout -s INT -k 20 "$limit" "$@" >"$work/$name.txt" 2>"$work/$name.log"
  echo "== $name: exit $? at $((SECONDS - began)) s"; tail -n 6 "$work/$name.txt" | cut -c1-200
}
first() { export CUDA_VISIBLE_DEVICES=0
  part tests 300 bench/gpu_tests.sh "$work/tests" alone
  part law 170 python3 bench/diagnosis_gpu.py "$work/law" --part law --budget-s 160
  part one 130 python3 bench/diagnosis_gpu.py "$work/one" --part one --names gpu-oom gpu-thrash gpu-compile --budget-s 120
}
second() { export CUDA_VISIBLE_DEVICES=1
  part eager 250 python3 bench/profile_training.py "$work/eager" --commit "$commit" --budget-s 235 --ways nsa dense nsa-tiles nsa-window nsa-compressed nsa-selected nsa-tiles-graphed dense-graphed nsa-graphed
  part compiled 190 python3 bench/profile_training.py "$work/compiled" --commit "$commit" --budget-s 175 --ways nsa-compiled dense-compiled nsa-tiles-compiled
  part tiles 110 python3 bench/tiles.py "$work/tiles.json"
}
nvidia-smi -L
case $stage in
  lanes) first & lanes=($!); second & lanes+=($!); (while sleep 20; do keep; done) & keeper=$!
    wait "${lanes[@]}" ;;
  together) (while sleep 20; do keep; done) & keeper=$!
    part bullet 210 python3 bench/diagnosis_gpu.py "$work/bullet" --part bullet --budget-s 200
    part nccl 130 python3 bench/train_nccl.py "$work/nccl"
    part compare 120 python3 bench/training.py "$work/train" --parts compare tiles --budget-s 110 --commit "$commit"
    part incident_001 125 python3 -m harness matrix run matrices/incident_001.yaml --runs "$work/runs" --executor local --budget 110s ;;
  *) echo "no stage $stage: lanes or together" >&2; exit 2 ;;
esac
kill "$keeper"; keep
