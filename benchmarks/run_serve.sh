#!/usr/bin/env bash
# What a server costs and how it bears load, on a quiet machine: a line of JSON for each measurement, with what it is.
#   benchmarks/run_serve.sh [SECONDS] > benchmarks/results/serve-$(date +%Y-%m-%d).jsonl
# A model by itself beside one client; 1, 8 and 32 clients; twice the capacity at a fixed rate, by REST and gRPC, with the memory of
# the server before and after; 64 MiB there and back, beside two copies of as many bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
work=$(mktemp -d)
trap '[[ -z ${server-} ]] || kill "$server"; wait; rm -rf "$work"' EXIT
go build -o "$work/optimem" ./cmd/optimem
go build -o "$work/load" ./benchmarks/serve
mkdir "$work/models"
"$work/optimem" synth resnet50 -o "$work/resnet50.pt" 
cp "$work/resnet50.pt" examples/digits/digits.pt2 internal/preprocess/testdata/look.pt2 "$work/models"
echo '{"arch": "resnet50"}' >"$work/models/resnet50.model.json"
"$work/optimem" serve "$work/models" --memory 512MiB --listen 127.0.0.1:18000 --admin 127.0.0.1:18001 --max-body 80MiB --max-queue 64 2>"$work/log" &
server=$!
until grep -q administration "$work/log"; do sleep 0.1; done
resident() { awk '/VmRSS/ {print $2 * 1024}' "/proc/$server/status" 2>/dev/null || echo 0; }
say() { # WHAT ARGUMENTS...
	local what=$1
	shift
	printf '{"what": "%s", "server_bytes_before": %s, "result": %s, ' "$what" "$(resident)" "$("$work/load" -seconds "$seconds" "$@")"
	printf '"server_bytes_after": %s, "machine": "%s", "commit": "%s"}\n' "$(resident)" "$(uname -srm), $(nproc) processors" "$(git rev-parse --short HEAD)"
}
load=(-url http://127.0.0.1:18000)
for model in "digits input 1,1,8,8 $work/models/digits.pt2" "resnet50 x 1,3,224,224 $work/models/resnet50.pt"; do
	read -r name input shape file <<<"$model"
	of=(-model "$name" -input "$input" -shape "$shape")
	[[ $name != digits ]] || say "$name, by itself" -direct "$file" "${of[@]}"
	for grpc in "" -grpc; do
		for clients in 1 8 32; do
			say "$name, $clients clients $grpc" "${load[@]}" "${of[@]}" -clients "$clients" $grpc
		done
		capacity=$("$work/load" -seconds "$seconds" "${load[@]}" "${of[@]}" -clients 32 $grpc | sed -E 's/.*"answered_per_second":([0-9.e+]*).*/\1/')
		say "$name, twice the capacity of $capacity a second $grpc" "${load[@]}" "${of[@]}" -rate "$(awk "BEGIN {print 2 * $capacity}")" $grpc
	done
done
for grpc in "" -grpc; do # 5461 × 3 × 32 × 32 numbers
	say "64 MiB there and back $grpc" "${load[@]}" -model look -input x -shape 5461,3,32,32 -clients 1 $grpc
done
