#!/bin/sh
# Measures the loader beside torch.load and gopickle, in turns, and writes benchmarks/results/loader-CPU-DATE.{txt,json}.
#
#   OPTIMEM_PYTHON=python3 benchmarks/run_loader.sh [options of loader_compare.py]
#
# OPTIMEM_PYTHON is a Python with torch; fio and dd must be there too. The files (7 GB for a while) lie in
# benchmarks/data.
set -eu
cd "$(dirname "$0")/.."
python=${OPTIMEM_PYTHON:-python3}
data=benchmarks/data
mkdir -p "$data" benchmarks/results

go build -o "$data/optimem" ./cmd/optimem
go build -o "$data/loader" ./benchmarks/loader
go build -o "$data/gopickle" ./benchmarks/peers/gopickle

[ -f "$data/tensors10000.pth" ] || "$data/loader" make 10000 "$data/tensors10000.pth"
[ -f "$data/nodes5000.pt2" ] || "$python" benchmarks/peers/export_graph.py 5000 "$data/nodes5000.pt2"

exec "$python" benchmarks/peers/loader_compare.py "$@"
