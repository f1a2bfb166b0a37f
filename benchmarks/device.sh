#!/bin/sh
# Every check of one accelerator, in at most thirteen minutes; results go to $OUT.
#
#     pip install --no-deps --target build/device fla-core
#     OUT=build/results SPARING_DATA=/data benchmarks/device.sh
#
# First the paths of all mechanisms beside fused dense attention (four minutes), then the patches of
# HuggingGreen at 224 pixels with the energy of the device's counter (eight minutes). Both go on
# where they stopped when they are started again.
set -u
OUT=${OUT:-build/results}
mkdir -p "$OUT"
PYTHONPATH=src:papers:build/device${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
timeout 300 python3 benchmarks/accelerator.py --output "$OUT/accelerator.jsonl"
timeout 520 python3 -m sparing study hugginggreen --budget device --minutes 7.5 \
    --output-dir "$OUT/hugginggreen"
