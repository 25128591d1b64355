#!/bin/sh
# Text beside its peers, in at most fifteen minutes of a quiet machine: SmolLM2-135M and a Llama of 1.1 billion random weights as
# bfloat16, Q8_0 and Q4_K, one and two threads; and sixteen texts at once of the large one where weights are paged.
#
#     PYTHON=.venv/bin/python benchmarks/run_text.sh SmolLM2-135M-Instruct [FOLDER]
#
# The model is made in FOLDER, benchmarks/data/text by default, once: 4 GB. PYTHON needs torch and transformers, and has rows for
# xllamacpp and openvino-genai where they are installed.
set -eu
cd "$(dirname "$0")/.."
smollm=$1 data=${2:-benchmarks/data/text} python=${PYTHON:-python3}
go build -trimpath -o bin/optimem ./cmd/optimem
"$python" benchmarks/text_model.py bin/optimem "$smollm" "$data" >/dev/null
date -u +%Y-%m-%dT%H:%MZ
grep -m 1 'model name' /proc/cpuinfo || true
cat /proc/loadavg
say() { printf '\n%s\n\n' "$1"; }
say 'SmolLM2-135M-Instruct, bfloat16'
"$python" benchmarks/run_generate.py bin/optimem "$smollm" --rounds 2
for kind in q8_0 q4_k; do
	say "Llama 1.1B, $kind"
	"$python" benchmarks/run_gguf.py bin/optimem "$data/llama-$kind.gguf" --rounds 1 --tokens 32 --words 100
done
say 'Llama 1.1B, bfloat16'
"$python" benchmarks/run_generate.py bin/optimem "$data/llama" --rounds 1 --tokens 16 --words 100
say 'Llama 1.1B, bfloat16, paged through 512 MiB: texts at once'
"$python" benchmarks/run_together.py bin/optimem "$data/llama" --memory 512MiB --tokens 16
