#!/usr/bin/env bash
# Builds flash-attn 2 from its source distribution for one GPU of compute capability 9.0, heads up to 64 and 128 alone
# and without dropout, ALiBi and softcap (190 s on 16 cores, measured); then the route runs with it, and its tests:
#     bench/flash_attn_gpu.sh flash_attn-2.8.3.tar.gz RESULTS_FOLDER [COMPILERS]
# `pip download --no-deps --no-binary :all: flash-attn==2.8.3` fetches the distribution. Needs nvcc, ninja and torch.
set -u
archive=$(realpath "$1")
out=$(mkdir -p "$2" && cd "$2" && pwd)
cd "$(dirname "$0")/.."
here=$PWD
work=$(mktemp -d)
tar xzf "$archive" -C "$work" --exclude='*/composable_kernel/*' && cd "$work"/flash_attn-* || exit 1
sed -i -E '/hdim(32|96|192|256)_/d' setup.py
sed -i -E 's/HEADDIM <= 32\)/HEADDIM <= 0)/; s/HEADDIM <= 96\)/HEADDIM <= 0)/; s/kHeadDim = (32|96|192|256);/kHeadDim = 128;/' \
  csrc/flash_attn/src/static_switch.h
echo '#include <torch/all.h>' >"$work/try.cpp"
torch=$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))')
g++ -std=c++17 -fsyntax-only -I"$torch/include" -I"$torch/include/torch/csrc/api/include" "$work/try.cpp" 2>"$out/try.log" ||
  sed -i 's/-std=c++17/-std=c++20/' setup.py
off="-DFLASHATTENTION_DISABLE_DROPOUT -DFLASHATTENTION_DISABLE_ALIBI -DFLASHATTENTION_DISABLE_SOFTCAP"
export FLASH_ATTENTION_FORCE_BUILD=TRUE FLASH_ATTN_CUDA_ARCHS=90 NVCC_THREADS=1 MAX_JOBS=${3:-16} NVCC_APPEND_FLAGS=$off
export CXXFLAGS=$off PIP_NO_INDEX=1
began=$(date +%s)
nice -n 5 python3 setup.py bdist_wheel >"$out/build.log" 2>&1
status=$?
echo "built in $(($(date +%s) - began)) s, status $status: $(ls -l dist 2>/dev/null | tail -n 1)"
[ $status = 0 ] || { grep -m 5 -n -E "error|Error" "$out/build.log"; tail -n 15 "$out/build.log"; exit 1; }
python3 -m pip install -q --no-index --no-deps --target "$work/site" dist/*.whl || exit 1
cp dist/*.whl "$out/" 2>/dev/null
cd "$here"
export PYTHONPATH=$work/site:$here:${PYTHONPATH:-}
python3 -c 'import flash_attn, torch; print("flash-attn", flash_attn.__version__, flash_attn.__file__, "torch", torch.__version__)'
timeout 200 python3 -m pytest tests/nsa -m gpu -k "flash-attn or flash_attn" -q --no-header -rs -n 4 \
  -p no:cacheprovider -p no:benchmark >"$out/tests.txt" 2>&1
status=$?
grep -E "^(FAILED|ERROR|SKIPPED)" "$out/tests.txt" | cut -c1-200 | head -30
tail -n 1 "$out/tests.txt"
python3 bench/flash_attn_route.py || status=1
exit $status
