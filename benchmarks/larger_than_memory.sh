#!/usr/bin/env bash
# Language models many times larger than the memory they are given: bytes that are read for a token, and what part of the disk's
# limit is reached. Prints a table and writes benchmarks/results/larger-SIZE-CPU-DATE.jsonl.
#
#	benchmarks/larger_than_memory.sh [small|half|full] [PART...]
#
# Parts: dense, packed, batch, experts, long, peers, and turns, which is only run if it is named. small has models of some
# hundred MB, whose counts mean something and whose times do not; half has some of 3 to 8 GB, in about a quarter of an hour and
# 11 GB of disk; full has those of the table in docs/larger-than-memory.md, of which one at a time (up to 30 GB) lies in
# benchmarks/data. Where cgroups can be made (root), each run is under a limit of the budget and 400 MB beside it, so that the
# page cache holds nothing of the model; where not, that is said. Files are dropped from the page cache before each run.
#
# The disk's rate is measured before the passes of a row and after them, with as many reads under way as they have; its mean is
# what "of the limit" is about. Of packed files it is the rate of their bytes as they lie.
#
# turns has what is compared with each other run one after the other, ROUNDS times (default: 5): the raw model, the packed one,
# 32 sequences at once, and peers if there are some. Rates of a disk that drift from minute to minute are then much the same for
# all of a round, and its ratios are of one round each. The last line has medians and ratios.
#
# peers are llama.cpp, with a GGUF file of the same weights that it maps, and transformers with accelerate's disk offload:
# larger_peers.py, if PYTHON (default: python3) has them. Their limit is the budget and what Python takes beside it, 900 MB.
set -euo pipefail
cd "$(dirname "$0")/.."
size=${1:-small}
shift || true
parts=${*:-dense packed batch peers experts long}
python=${PYTHON:-python3}
data=benchmarks/data
mkdir -p "$data" benchmarks/results
go build -o "$data/larger" ./benchmarks/larger
go build -o "$data/optimem" ./cmd/optimem
cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -1 | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-')
results=benchmarks/results/larger-$size-${cpu:-cpu}-$(date +%Y-%m-%d).jsonl
: > "$results"

# limited BYTES BESIDE COMMAND...: runs it in a memory cgroup, where that can be.
limited() {
	local bytes=$1 beside=$2 group status=0
	shift 2
	for root in /sys/fs/cgroup /sys/fs/cgroup/memory; do
		group=$root/larger-$$
		if [ "$bytes" -gt 0 ] && mkdir "$group" 2>/dev/null; then
			local limit=$group/memory.max
			[ -e "$limit" ] || limit=$group/memory.limit_in_bytes
			if [ -e "$limit" ] && echo $((bytes + beside)) > "$limit" 2>/dev/null; then
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

# dropped PATH: what is in the page cache of a file, or of the files of a folder, is dropped.
dropped() {
	sync
	find "$1" -type f -size +1M -exec dd if={} iflag=nocache count=0 status=none \; 2>/dev/null || true
}

# row NAME: what a program prints becomes a row of that name, in the round that it is.
row() {
	sed "s/^{/{\"name\":\"$1\",${round:+\"round\":$round,}/" | tee -a "$results" "$data/turns.jsonl" | table
}

# peer NAME MEMORY WHAT PATH FLAGS...: a row of another program.
peer() {
	local name=$1 memory=$2 what=$3 path=$4
	shift 4
	dropped "$path"
	limited "$memory" 900000000 timeout 600 "$python" -W ignore benchmarks/larger_peers.py "$what" "$path" "$@" 2>"$data/peer.log" |
		sed "s/^{/{\"budget_bytes\":$memory,/" | row "$name" || {
		echo "$name: $(tail -1 "$data/peer.log")" >&2
	}
}

# measured NAME MEMORY FOLDER FLAGS...: one row.
measured() {
	local name=$1 memory=$2 folder=$3
	shift 3
	dropped "$folder"
	limited "$memory" 400000000 "$data/larger" run -memory "$memory" -disk "$seconds" "$@" "$folder" | row "$name"
}

# packed: the dense model's folder becomes a packed one.
packed() {
	rm -rf "$data/packed"
	"$data/optimem" pack "$data/dense" -o "$data/packed" >/dev/null
}

# has MODULE...: whether the Python has modules.
has() {
	local list=$*
	"$python" -c "import ${list// /, }" 2>/dev/null
}

table() {
	awk '{
		n = split("name model_bytes budget_bytes peak_bytes bytes_per_token tokens_per_gb tokens_per_second disk_before_bytes_per_second disk_after_bytes_per_second of_limit expert_reads replayed_reads belady_reads", keys, " ")
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

echo "| work | model | budget | held at most | bytes a token | tokens a GB | tokens a second | disk before | disk after | of the limit | experts read | replay | Belady |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|"

# made FOLDER FLAGS...: makes a model, unless it is there.
made() {
	local folder=$data/$1
	shift
	[ -e "$folder/done" ] && return
	rm -rf "$folder"
	"$data/larger" make "$@" "$folder"
	touch "$folder/done"
}
round=
trap 'rm -rf "$data/turns.jsonl" "$data/dense" "$data/packed" "$data/experts" "$data/long" "$data"/*.gguf' EXIT
rm -rf "$data/dense" "$data/experts" "$data/long"

seconds=5s
case $size in
full)
	dense="-layers 15 -hidden 4096 -inner 11008 -heads 32 -key-heads 8"
	experts="-layers 13 -hidden 2048 -inner 768 -heads 32 -key-heads 4 -experts 128 -named 8"
	long="-layers 17 -hidden 8192 -inner 28672 -heads 64 -key-heads 8"
	denseMemory=1610612736 expertsMemory=4294967296 longMemory=2147483648 passes=8 expertPasses=200 longPasses=1000 batchContext=128
	peerPasses=5
	;;
half)
	dense="-layers 8 -hidden 4096 -inner 11008 -heads 32 -key-heads 8"
	experts="-layers 10 -hidden 1024 -inner 512 -heads 16 -key-heads 4 -experts 128 -named 8"
	long="-layers 20 -hidden 4096 -inner 11008 -heads 32 -key-heads 8"
	denseMemory=805306368 expertsMemory=1073741824 longMemory=805306368 passes=6 expertPasses=100 longPasses=8 batchContext=64
	peerPasses=3
	;;
small)
	seconds=0s
	dense="-layers 12 -hidden 512 -inner 1408 -heads 8 -key-heads 4 -vocabulary 4000"
	experts="-layers 8 -hidden 256 -inner 192 -heads 4 -key-heads 2 -vocabulary 4000 -experts 128 -named 8"
	long="-layers 40 -hidden 512 -inner 1408 -heads 8 -key-heads 4 -vocabulary 4000"
	denseMemory=33000000 expertsMemory=85000000 longMemory=60000000 passes=16 expertPasses=200 longPasses=40 batchContext=32
	peerPasses=8
	;;
*)
	echo "no size $size" >&2
	exit 2
	;;
esac

for part in $parts; do
	case $part in
	dense)
		made dense $dense
		measured "dense, one sequence" $denseMemory "$data/dense" -passes $passes
		for accepted in 2.2 3.5 5; do
			measured "dense, $accepted tokens a pass" $denseMemory "$data/dense" -passes $passes -rows 8 -accepted $accepted
		done
		;;
	packed)
		made dense $dense
		packed
		measured "dense, packed" $denseMemory "$data/packed" -passes $passes
		rm -rf "$data/packed"
		;;
	turns)
		made dense $dense
		packed
		has xllamacpp gguf && "$python" benchmarks/larger_peers.py gguf "$data/dense" "$data/dense.gguf"
		: > "$data/turns.jsonl"
		for round in $(seq "${ROUNDS:-5}"); do
			measured raw $denseMemory "$data/dense" -passes $passes
			measured packed $denseMemory "$data/packed" -passes $passes
			measured "32 sequences" $denseMemory "$data/dense" -passes $passes -sequences 32 -context $batchContext
			has transformers accelerate && peer "transformers + accelerate" $denseMemory accelerate "$data/dense" --passes $peerPasses
			[ -e "$data/dense.gguf" ] && peer llama.cpp $denseMemory llama "$data/dense.gguf" --passes $peerPasses
		done
		round=
		"$data/larger" turns < "$data/turns.jsonl" | tee -a "$results"
		rm -rf "$data/packed" "$data/dense.gguf"
		;;
	batch)
		made dense $dense
		measured "dense, 32 sequences" $denseMemory "$data/dense" -passes $passes -sequences 32 -context $batchContext
		;;
	peers)
		made dense $dense
		if has transformers accelerate; then
			peer "transformers + accelerate, one sequence" $denseMemory accelerate "$data/dense" --passes $peerPasses
			peer "transformers + accelerate, 32 sequences" $denseMemory accelerate "$data/dense" --passes $peerPasses --sequences 32
		else
			echo "no transformers with accelerate" >&2
		fi
		if has xllamacpp gguf; then
			"$python" benchmarks/larger_peers.py gguf "$data/dense" "$data/dense.gguf"
			peer "llama.cpp, dense" $denseMemory llama "$data/dense.gguf" --passes $peerPasses
			rm -rf "$data/dense.gguf" "$data/dense"
			made experts $experts
			"$python" benchmarks/larger_peers.py gguf "$data/experts" "$data/experts.gguf"
			peer "llama.cpp, experts" $expertsMemory llama "$data/experts.gguf" --passes $((expertPasses / 2)) --warm $((expertPasses / 5))
			rm -f "$data/experts.gguf"
		else
			echo "no xllamacpp with gguf" >&2
		fi
		;;
	experts)
		rm -rf "$data/dense"
		made experts $experts
		for memory in $((expertsMemory / 2)) $expertsMemory $((expertsMemory * 2)); do
			measured "experts, one sequence" $memory "$data/experts" -passes $expertPasses -warm 20
		done
		;;
	long)
		rm -rf "$data/dense" "$data/experts"
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
