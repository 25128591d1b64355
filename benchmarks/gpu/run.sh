#!/usr/bin/env bash
# Checks and measures optimem on a GPU, in under eight minutes, and writes results.jsonl.
#
#	./run.sh [--only parity,copies,start,resnet,transformer,ops,text,cold] [--out FILE] [--python PYTHON]
#	./run.sh --only kernels,models --out kernels.jsonl    # ops and models that stay, beside PyTorch: another eight minutes
#	OPTIMEM_KIT_SECONDS=600 ./run.sh --only transformer --patience 3
#	./run.sh --dry --library LIBCUDA    # small sizes on a simulated driver, PyTorch on the CPU
#
# It wants Linux, an NVIDIA driver, Python with PyTorch 2.11 or later, torchvision, transformers, accelerate, zstandard and
# safetensors, some 14 GB of disk where TMPDIR says and as much memory; it needs no Go, no network and no rights. Each part
# has a limit of its own, and what it had found is in the file when it is cut.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
python=${OPTIMEM_PYTHON:-python3}
limit=${OPTIMEM_KIT_SECONDS:-475}
arguments=()
while (($#)); do
	if [[ $1 == --python && $# -gt 1 ]]; then
		python=$2
		shift
	else
		arguments+=("$1")
	fi
	shift
done
# The limits of the parts add up to less than this one, which is for what is not foreseen.
exec timeout --kill-after=5 "$limit" "$python" kit.py "${arguments[@]+"${arguments[@]}"}"
