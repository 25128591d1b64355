#!/usr/bin/env bash
# Language models many times larger than the memory they are given: bytes that are read for a token, and what part of the disk's
# limit is reached. Prints a table and writes benchmarks/results/larger-SIZE-CPU-DATE.jsonl.
#
#	benchmarks/larger_than_memory.sh [small|full] [PART...]
#
# Parts: dense, batch, experts, long. small has models of some hundred MB, whose counts mean something and whose times do not; full
# has those of the table in docs/larger-than-memory.md, of which one at a time (up to 30 GB) lies in benchmarks/data. Where cgroups
# can be made (root), each run is under a limit of the budget and 400 MB beside it, so that the page cache holds nothing of the
# model; where not, that is said. Files are dropped from the page cache before each run.
#
# Other programs (accelerate, llama.cpp) are not run by it.
set -euo pipefail
cd "$(dirname "$0")/.."
size=${1:-small}
shift || true
parts=${*:-dense batch experts long}
data=benchmarks/data
mkdir -p "$data" benchmarks/results
go build -o "$data/larger" ./benchmarks/larger
cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -1 | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-')
results=benchmarks/results/larger-$size-${cpu:-cpu}-$(date +%Y-%m-%d).jsonl
: > "$results"

# limited BYTES COMMAND...: runs it in a memory cgroup, where that can be.
limited() {
	local bytes=$1 group status=0
	shift
	for root in /sys/fs/cgroup /sys/fs/cgroup/memory; do
		group=$root/larger-$$
		if [ "$bytes" -gt 0 ] && mkdir "$group" 2>/dev/null; then
			local limit=$group/memory.max
			[ -e "$limit" ] || limit=$group/memory.limit_in_bytes
			if [ -e "$limit" ] && echo $((bytes + 400000000)) > "$limit" 2>/dev/null; then
				(echo "$BASHPID" > "$group/cgroup.procs" && exec "$@") || status=$?
				rmdir "$group" || true
				return $status
			fi
			rmdir "$group" || true
		fi
	done
	[ "$bytes" -eq 0 ] || echo "no cgroup: the page cache is not limited" >&2
	"$@"
}

# measured NAME MEMORY FOLDER FLAGS...: one row.
measured() {
	local name=$1 memory=$2 folder=$3
	shift 3
	dd if="$folder/model.safetensors" iflag=nocache count=0 2>/dev/null || true
	limited "$memory" "$data/larger" run -memory "$memory" -disk "$seconds" "$@" "$folder" |
		sed "s/^{/{\"name\":\"$name\",/" | tee -a "$results" | table
}

table() {
	awk '{
		n = split("name model_bytes budget_bytes peak_bytes bytes_per_token tokens_per_gb tokens_per_second of_limit expert_reads replayed_reads belady_reads", keys, " ")
		line = ""
		for (i = 1; i <= n; i++) {
			v = "-"
			if (i == 1 && match($0, /"name":"[^"]*/)) v = substr($0, RSTART + 8, RLENGTH - 8)
			else if (match($0, "\"" keys[i] "\":[^,}]*")) {
				v = substr($0, RSTART + length(keys[i]) + 3, RLENGTH - length(keys[i]) - 3)
				x = v + 0
				v = x >= 1e6 ? sprintf("%.2f MB", x / 1e6) : x == int(x) ? sprintf("%d", x) : sprintf("%.2f", x)
			}
			line = line "| " v " "
		}
		print line "|"
	}'
}

echo "| work | model | budget | held at most | bytes a token | tokens a GB | tokens a second | of the limit | experts read | replay | Belady |"
echo "|---|---|---|---|---|---|---|---|---|---|---|"

made() { # FOLDER FLAGS...
	local folder=$data/$1
	shift
	rm -rf "$folder"
	"$data/larger" make "$@" "$folder"
}

if [ "$size" = full ]; then
	seconds=5s
	dense="-layers 15 -hidden 4096 -inner 11008 -heads 32 -key-heads 8"
	experts="-layers 13 -hidden 2048 -inner 768 -heads 32 -key-heads 4 -experts 128 -named 8"
	long="-layers 17 -hidden 8192 -inner 28672 -heads 64 -key-heads 8"
	denseMemory=1610612736 expertsMemory=4294967296 longMemory=2147483648 passes=8 expertPasses=200 longPasses=1000 batchContext=128
else
	seconds=0s
	dense="-layers 12 -hidden 512 -inner 1408 -heads 8 -key-heads 4 -vocabulary 4000"
	experts="-layers 8 -hidden 256 -inner 192 -heads 4 -key-heads 2 -vocabulary 4000 -experts 128 -named 8"
	long="-layers 40 -hidden 512 -inner 1408 -heads 8 -key-heads 4 -vocabulary 4000"
	denseMemory=33000000 expertsMemory=85000000 longMemory=60000000 passes=16 expertPasses=200 longPasses=40 batchContext=32
fi

for part in $parts; do
	case $part in
	dense)
		made dense $dense
		measured "dense, one sequence" $denseMemory "$data/dense" -passes $passes
		for accepted in 2.2 3.5 5; do
			measured "dense, $accepted tokens a pass" $denseMemory "$data/dense" -passes $passes -rows 8 -accepted $accepted
		done
		rm -rf "$data/dense"
		;;
	batch)
		made dense $dense
		measured "dense, 32 sequences" $denseMemory "$data/dense" -passes $passes -sequences 32 -context $batchContext
		rm -rf "$data/dense"
		;;
	experts)
		made experts $experts
		for memory in $((expertsMemory / 2)) $expertsMemory $((expertsMemory * 2)); do
			measured "experts, one sequence" $memory "$data/experts" -passes $expertPasses -warm 20
		done
		rm -rf "$data/experts"
		;;
	long)
		made long $long
		measured "many times larger" $longMemory "$data/long" -passes $longPasses
		rm -rf "$data/long"
		;;
	*)
		echo "no part $part" >&2
		exit 2
		;;
	esac
done
