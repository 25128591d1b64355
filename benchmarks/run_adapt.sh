#!/bin/sh
# Measures package adapt beside toma 1.1.0, in turns, and writes benchmarks/results/adapt-CPU-DATE.txt.
#
#   OPTIMEM_PYTHON=python3 benchmarks/run_adapt.sh [--rounds N]
#
# OPTIMEM_PYTHON is a Python with torch, psutil and toma 1.1.0.
set -eu
cd "$(dirname "$0")/.."
mkdir -p benchmarks/data benchmarks/results
go test -c -o benchmarks/data/adapt.test ./adapt
exec "${OPTIMEM_PYTHON:-python3}" benchmarks/peers/adapt_compare.py "$@"
