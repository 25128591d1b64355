#!/usr/bin/env bash
# Models larger than memory: optimem's modes beside PyTorch, accelerate and pytorch-optimem's algorithm, in turns and in the
# same memory limit. Writes benchmarks/results/paging-PART-CPU-DATE.{txt,json}.
#
#	OPTIMEM_PYTHON=python3 benchmarks/run_paging.sh [options of paging_compare.py]
#	OPTIMEM_PYTHON=python3 benchmarks/run_paging.sh --only close     # page mode ÷ resident; no peers, 4 GB of disk
#	OPTIMEM_PYTHON=python3 benchmarks/run_paging.sh --only close --ahead    # where others use the machine, with processor times
#
# OPTIMEM_PYTHON is a Python with torch, torchvision, transformers, accelerate and safetensors. The models (13 GB for a
# while) lie in DATA (default: benchmarks/data). Memory is limited by a cgroup and the page cache is emptied, which want root; where that is
# not possible it is said, and the comparison goes on without.
set -euo pipefail
cd "$(dirname "$0")/.."
export DATA=${DATA:-$PWD/benchmarks/data}
data=$DATA
mkdir -p "$data" benchmarks/results
go build -o "$data/optimem" ./cmd/optimem
go build -o "$data/paging" ./benchmarks/paging
exec "${OPTIMEM_PYTHON:-python3}" benchmarks/peers/paging_compare.py "$@"
