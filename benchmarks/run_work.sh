#!/usr/bin/env bash
# What a queue costs, on a quiet machine: one worker through JetStream, its server and the submitter on the same processors, beside
# 'optimem run --batch' alone over the same pictures with the same memory. Both are whole processes with a clock beside them: 'run' opens
# the model, reads or decodes, computes and writes one file; the worker is there already, 'submit' reads, waits and gathers a file for each
# picture. A line of JSON for each round:
#   ratio                 alone_seconds / queue_seconds; the aim is 0.97 or more
#   ratio_without_start   the same without what 'run' takes for one picture, which a worker that is there does not pay
#   *_processor_seconds   of 'run'; of the worker with the server in it; of 'submit'; of the server where it is apart
# How:
#   pictures   JPEG files of 500 × 375, which workers decode
#   shared     arrays of 600 KB on a path that both see
#   stored     arrays of 600 KB through the object store
# With APART=1 the server is in a process of its own, so that its processor seconds are known. It still shares the processors.
#   benchmarks/run_work.sh [PICTURES] [ROUNDS] [HOW...] > benchmarks/results/work-$(date +%Y-%m-%d).jsonl
set -euo pipefail
cd "$(dirname "$0")/.."
pictures=${1:-1024} rounds=${2:-3}
how=("${@:3}")
[[ ${#how[@]} != 0 ]] || how=(pictures shared stored)
work=$(mktemp -d)
started=()
trap 'kill "${started[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
commit=$(git rev-parse --short HEAD)
go build -o "$work/optimem" ./cmd/optimem
go build -o "$work/pictures" ./benchmarks/pictures
mkdir "$work/models" "$work/in"
"$work/optimem" synth resnet50 -o "$work/models/resnet50.pt"
echo '{"arch": "resnet50"}' >"$work/models/resnet50.model.json"
header() { # ROWS: of a .npy file, 128 bytes
	printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($1, 3, 224, 224), }"
}
picture() { # ROUND NUMBER: all of one colour, no two of which are the same
	head -c $((3 * 224 * 224 * 4)) < <(yes "$(printf '%01x%02x' "$1" "$2")")
}
serve() { # LOG ARGUMENTS...: a worker, until it takes work
	"$work/optimem" worker "${@:2}" --stream bench 2>"$1" &
	started+=($!)
	until grep -q 'takes work of' "$1"; do
		kill -0 $! || { cat "$1" >&2 && exit 1; }
		sleep 0.1
	done
}
queue=(--embedded "$work/queue" --listen 127.0.0.1:14222)
if [[ -n ${APART-} ]]; then
	mkdir "$work/other"
	cp examples/digits/digits.pt2 "$work/other"
	serve "$work/server.log" "$work/other" "${queue[@]}" --memory 64MiB
	server=${started[0]}
	queue=(--nats 127.0.0.1:14222)
fi
serve "$work/worker.log" "$work/models" "${queue[@]}" --memory 1GiB --shared "$work/in"
worker=${started[-1]}
spent() { # PID: processor seconds so far
	awk -v hz="$(getconf CLK_TCK)" '{sub(/.*\) /, ""); print ($12 + $13) / hz}' "/proc/$1/stat"
}
alone() { # INPUT ROWS FLAGS...
	(cd "$work/in" && "$work/optimem" run "$work/models/resnet50.pt" --arch resnet50 --input "$1" --batch "$2" "${@:3}" --memory 1GiB \
		--quiet -o "$work/alone.safetensors")
}
measured() { # COMMAND: seconds, and processor seconds
	local TIMEFORMAT='%R %U %S'
	{ time "$@" >"$work/said" 2>&1; } 2>"$work/time" || { cat "$work/said" >&2 && exit 1; }
	awk '{print $1, $2 + $3}' "$work/time"
}
minus() { awk "BEGIN {print $1 - $2}"; }
round=0
for what in "${how[@]}"; do
	for n in $(seq 0 "$rounds"); do # the first one warms up, with few pictures
		round=$((round + 1)) count=$pictures
		[[ $n != 0 ]] || count=$((pictures < 32 ? pictures : 32))
		rm -rf "$work"/in/* "$work/out" "$work/all.npy" # and not the folder, which the worker has open
		flags=()
		if [[ $what == pictures ]]; then
			"$work/pictures" "$work/in" "$count" "$round"
			flags=(--preprocess imagenet)
			input=$(cd "$work/in" && printf '%s,' *.jpg)
			input=${input%,}
			first=${input%%,*}
		else
			header "$count" >"$work/all.npy"
			for i in $(seq 1 "$count"); do
				{ header 1 && picture "$round" "$i"; } >"$work/in/$i.npy"
				tail -c +129 "$work/in/$i.npy" >>"$work/all.npy"
			done
			input=$work/all.npy first=1.npy
		fi
		read -r one _ < <(measured alone "$first" 1 "${flags[@]}")
		read -r alone_seconds alone_spent < <(measured alone "$input" "$count" "${flags[@]}")
		[[ $what != shared ]] || flags=(--shared "$work/in")
		before=$(spent "$worker") server_before=0 server_spent=null
		[[ -z ${server-} ]] || server_before=$(spent "$server")
		read -r seconds submit_spent < <(measured "$work/optimem" submit --nats 127.0.0.1:14222 --stream bench --model resnet50 "$work"/in/* \
			-o "$work/out" --quiet "${flags[@]}")
		worker_spent=$(minus "$(spent "$worker")" "$before")
		[[ -z ${server-} ]] || server_spent=$(minus "$(spent "$server")" "$server_before")
		[[ $n != 0 ]] || continue
		awk -v how="$what" -v n="$count" -v a="$alone_seconds" -v o="$one" -v q="$seconds" -v ap="$alone_spent" -v wp="$worker_spent" \
			-v sp="$submit_spent" -v vp="$server_spent" -v m="$(uname -srm), $(nproc) processors" -v c="$commit" 'BEGIN {
			printf "{\"how\": \"%s\", \"pictures\": %d, \"alone_seconds\": %s, \"queue_seconds\": %s, \"ratio\": %.4f, ", how, n, a, q, a / q
			printf "\"ratio_without_start\": %.4f, \"alone_processor_seconds\": %s, \"worker_processor_seconds\": %s, ", (a - o) / q, ap, wp
			printf "\"submit_processor_seconds\": %s, \"server_processor_seconds\": %s, \"machine\": \"%s\", \"commit\": \"%s\"}\n", sp, vp, m, c
		}'
	done
done
