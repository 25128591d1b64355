#!/usr/bin/env bash
# What a queue costs, on a quiet machine: pictures a second of one worker through JetStream, of a server within it, beside 'optimem run
# --batch' alone over the same pictures with the same memory. A line of JSON for each round; the aim is a ratio of 0.97 or more.
#   benchmarks/run_work.sh [PICTURES] [ROUNDS] > benchmarks/results/work-$(date +%Y-%m-%d).jsonl
set -euo pipefail
cd "$(dirname "$0")/.."
pictures=${1:-128} rounds=${2:-5}
work=$(mktemp -d)
trap '[[ -z ${worker-} ]] || kill "$worker"; wait; rm -rf "$work"' EXIT
go build -o "$work/optimem" ./cmd/optimem
mkdir "$work/models"
"$work/optimem" synth resnet50 -o "$work/models/resnet50.pt"
echo '{"arch": "resnet50"}' >"$work/models/resnet50.model.json"
header() { # ROWS: of a .npy file, 128 bytes
	printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($1, 3, 224, 224), }"
}
picture() { # ROUND NUMBER: all of one colour, no two of which are the same
	head -c $((3 * 224 * 224 * 4)) < <(yes "$(printf '%01x%02x' "$1" "$2")")
}
"$work/optimem" worker "$work/models" --embedded "$work/queue" --listen 127.0.0.1:14222 --stream bench --memory 1GiB 2>"$work/log" &
worker=$!
until grep -q 'takes work of' "$work/log"; do sleep 0.1; done
for round in $(seq 0 "$rounds"); do # the first one warms up
	rm -rf "$work/in" "$work/out" && mkdir "$work/in"
	header "$pictures" >"$work/all.npy"
	for i in $(seq 1 "$pictures"); do
		{ header 1 && picture "$round" "$i"; } >"$work/in/$i.npy"
		picture "$round" "$i" >>"$work/all.npy"
	done
	alone=$("$work/optimem" run "$work/models/resnet50.pt" --arch resnet50 --input "$work/all.npy" --batch "$pictures" --memory 1GiB \
		--runs 2 --json --quiet | sed -nE 's/.*"seconds": ?([0-9.e+-]+),?$/\1/p' | head -1)
	begin=$(date +%s.%N)
	"$work/optimem" submit --nats 127.0.0.1:14222 --stream bench --model resnet50 "$work"/in/*.npy -o "$work/out" --quiet
	queue=$(awk "BEGIN {print $(date +%s.%N) - $begin}")
	[[ $round != 0 ]] || continue
	awk -v n="$pictures" -v a="$alone" -v q="$queue" -v m="$(uname -srm), $(nproc) processors" -v c="$(git rev-parse --short HEAD)" 'BEGIN {
		printf "{\"pictures\": %d, \"alone_seconds\": %s, \"queue_seconds\": %s, \"ratio\": %.4f, \"machine\": \"%s\", \"commit\": \"%s\"}\n", n, a, q, a / q, m, c
	}'
done
