#!/usr/bin/env bash
# Speed on the CPU with the model in memory: optimem beside PyTorch, ONNX Runtime and OpenVINO, in turns. Writes
# benchmarks/results/speed-CPU-DATE.{txt,json}. After "page": page mode beside resident weights, page-CPU-DATE.{txt,json}. After
# "first": the time from the start of a process to its first result, first-CPU-DATE.{txt,json}.
#
#	benchmarks/run_speed.sh [options of speed_compare.py] [MODEL@BATCH ...]
#	benchmarks/run_speed.sh page [options of page_compare.py] [MODEL@BATCH ...]
#	benchmarks/run_speed.sh first [options of first_compare.py] [MODEL@BATCH ...]
#
# The peers are installed into benchmarks/data/peers unless OPTIMEM_PYTHON names a Python that has them. Models (up to 9 GB at
# once) lie in benchmarks/data/speed while they are measured.
set -euo pipefail
cd "$(dirname "$0")/.."
data=benchmarks/data
mkdir -p "$data/speed" benchmarks/results
python=${OPTIMEM_PYTHON:-}
if [[ -z $python ]]; then
	python=$data/peers/bin/python
	if [[ ! -x $python ]]; then
		python3 -m venv "$data/peers"
		"$python" -m pip install -q -r benchmarks/peers/requirements.txt
	fi
fi
go build -o "$data/speed/speed" ./benchmarks/speed
compare=speed_compare.py
if [[ ${1:-} == page ]]; then
	compare=page_compare.py
	shift
elif [[ ${1:-} == first ]]; then
	go build -o "$data/speed/optimem" ./cmd/optimem
	compare=first_compare.py
	shift
	set -- --program "$data/speed/optimem" "$@"
fi
exec "$python" "benchmarks/peers/$compare" --worker "$data/speed/speed" --data "$data/speed" "$@"
