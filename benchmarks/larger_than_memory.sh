#!/usr/bin/env bash
# Language models many times larger than the memory they are given: bytes that are read for a token, and what part of the disk's
# limit is reached. Prints a table and writes benchmarks/results/larger-SIZE-CPU-DATE.jsonl.
#
#	benchmarks/larger_than_memory.sh [small|half|full] [PART...]
#
# Parts: dense, packed, batch, slots, experts, thirty, peers; and turns, beside and guesses, which are only run if they are named. small
# has models of some hundred MB, whose counts mean something and whose times do not; half has some of 3 to 8 GB, in about a
# quarter of an hour and 11 GB of disk; full has those of the table in docs/larger-than-memory.md. Models lie in DATA (default:
# benchmarks/data) while they are needed. Where cgroups can be made (root), each run is under a limit of the budget and 400 MB
# beside it, so that the page cache holds nothing of the model; where not, that is said. Files are dropped from the page cache
# before each run. What the cgroup counted is in each row: times that processes were killed for memory, what was swapped, the
# most that was held with the page cache, and how often the limit was reached, which reading through the page cache does.
#
# The disk's rate is measured before the passes of a row and after them, with as many reads under way as they have; its mean is
# what "of the limit" is about. Of packed files it is the rate of their bytes as they lie.
#
# experts is a mixture of experts under a limit of exactly what is said, without swap, ours and llama.cpp in turns, ROUNDS times
# (default: 2). Both take the same text, of Zipf's frequencies and a Markov chain, through the same weights, so that both send
# rows to the same experts; "agreed" is how often both find the same next token. Exact says that what was read is the experts
# that were missing, byte for byte, and as many as a replay of the routing finds. slots has three budgets and no peer.
# At full: 16 GB in 4 GiB, 32 GB of disk.
#
# thirty is a model of 30 GB in exactly 2 GiB, without swap, at full: a hundred texts at once write 1,000 tokens. The file has
# all of its bytes, and 30 GB of disk are needed; what is allocated is printed.
#
# turns has what is compared with each other run one after the other, ROUNDS times (default: 5): the raw model, the packed one,
# 32 sequences at once, and peers if there are some. Rates of a disk that drift from minute to minute are then much the same for
# all of a round, and its ratios are of one round each. The last line has medians and ratios. beside is the raw model and the
# peers only. At full: 30 GB of disk, for beside 24.
#
# guesses is the raw model with one token a pass and with 8 rows of which 2.2, 3.5 and 5 count, one after the other in each round.
# "of_passes" in the last line is what is left of that many times the plain tokens a second. At full: 6 GB of disk.
#
# peers are llama.cpp, with a GGUF file of the same weights that it maps, transformers with accelerate's disk offload, and AirLLM:
# larger_peers.py, if PYTHON (default: python3) has them, AirLLM in AIRLLM (default: PYTHON). Their limit is the budget and what
# Python takes beside it, 900 MB; each has PEER_SECONDS (default: 100) for its passes.
set -euo pipefail
cd "$(dirname "$0")/.."
size=${1:-small}
shift || true
parts=${*:-dense packed batch peers slots experts thirty}
named=${*:+-${*// /-}}
python=${PYTHON:-python3}
air=${AIRLLM:-$python}
data=${DATA:-benchmarks/data}
mkdir -p "$data" benchmarks/results
go build -o "$data/larger" ./benchmarks/larger
go build -o "$data/optimem" ./cmd/optimem
cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -1 | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-')
results=benchmarks/results/larger-$size${named// /-}-${cpu:-cpu}-$(date +%Y-%m-%d).jsonl
: > "$results"

# limited BYTES BESIDE COMMAND...: runs it in a memory cgroup, where that can be, without swap; what the cgroup counted is put
# into the line of JSON that the command prints.
limited() {
	local bytes=$1 beside=$2 group status=0
	shift 2
	for root in /sys/fs/cgroup /sys/fs/cgroup/memory; do
		group=$root/larger-$$
		if [ "$bytes" -gt 0 ] && mkdir "$group" 2>/dev/null; then
			local limit=$group/memory.max
			[ -e "$limit" ] || limit=$group/memory.limit_in_bytes
			if [ -e "$limit" ] && echo $((bytes + beside)) > "$limit" 2>/dev/null; then
				echo 0 2>/dev/null > "$group/memory.swap.max" ||
					echo $((bytes + beside)) 2>/dev/null > "$group/memory.memsw.limit_in_bytes" || true
				(echo "$BASHPID" > "$group/cgroup.procs" && exec "$@") > "$data/limited.json" || status=$?
				[ $status -eq 0 ] || echo "status $status; the cgroup: $(counted "$group")" >&2
				sed "s/}\$/,\"cgroup\":{$(counted "$group")}}/" "$data/limited.json"
				rmdir "$group" || true
				return $status
			fi
			rmdir "$group" || true
		fi
	done
	[ "$bytes" -eq 0 ] || echo "no cgroup: the page cache is not limited" >&2
	"$@"
}

# counted GROUP: what a cgroup counted, of either version.
counted() {
	local group=$1
	if [ -e "$group/memory.events" ]; then
		awk '{ printf "\"%s\":%d,", $1, $2 }' "$group/memory.events"
		printf '"swap_bytes":%d,"peak_bytes":%d,"limit_bytes":%d' "$(number "$group/memory.swap.peak")" \
			"$(number "$group/memory.peak")" "$(number "$group/memory.max")"
		return
	fi
	printf '"oom_kill":%d,"swap_bytes":%d,"max":%d,"peak_bytes":%d,"limit_bytes":%d' \
		"$(awk '$1 == "oom_kill" { print $2 }' "$group/memory.oom_control")" \
		"$(awk '$1 == "total_swap" { print $2 }' "$group/memory.stat")" $(($(number "$group/memory.failcnt") + $(number "$group/memory.memsw.failcnt"))) \
		"$(number "$group/memory.max_usage_in_bytes")" "$(number "$group/memory.limit_in_bytes")"
}

# number FILE: the number in a file, 0 where there is none.
number() { cat "$1" 2>/dev/null || echo 0; }

# room GIGABYTES: says so, and fails, where the disk has less.
room() {
	local free
	free=$(df -Pk "$data" | awk 'NR == 2 { print int($4 / 1e6) }')
	[ "$size" != full ] || [ "$free" -ge "$1" ] || {
		echo "$part needs $1 GB of disk, and $data has $free" >&2
		return 1
	}
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

# peer NAME MEMORY BESIDE PYTHON WHAT PATH FLAGS...: a row of another program.
peer() {
	local name=$1 memory=$2 beside=$3 python=$4 what=$5 path=$6
	shift 6
	dropped "$path"
	[ ! -d "$data/shards" ] || dropped "$data/shards"
	limited "$memory" "$beside" timeout 600 "$python" -W ignore benchmarks/larger_peers.py "$what" "$path" "$@" \
		--seconds "${PEER_SECONDS:-100}" 2>"$data/peer.log" |
		sed "s/^{/{\"budget_bytes\":$memory,/" | row "$name" || {
		echo "$name: $(tail -1 "$data/peer.log")" >&2
	}
}

# peers FLAGS...: a row of each program that can be run of the dense model.
peers() {
	has transformers accelerate && peer "transformers + accelerate" $denseMemory 900000000 "$python" accelerate "$data/dense" "$@"
	[ -e "$data/shards/done" ] && peer AirLLM $denseMemory 900000000 "$air" airllm "$data/dense" "$data/shards" "$@"
	[ -e "$data/dense.gguf" ] && peer llama.cpp $denseMemory 900000000 "$python" llama "$data/dense.gguf" "$@"
	true
}

# prepared: files that the peers read of the dense model.
prepared() {
	! has xllamacpp gguf || "$python" benchmarks/larger_peers.py gguf "$data/dense" "$data/dense.gguf"
	if "$air" -c 'import airllm' >/dev/null 2>&1; then
		rm -rf "$data/shards"
		mkdir "$data/shards"
		if timeout 600 "$air" -W ignore benchmarks/larger_peers.py split "$data/dense" "$data/shards" >"$data/peer.log" 2>&1; then
			touch "$data/shards/done"
		else
			echo "AirLLM: $(tail -1 "$data/peer.log")" >&2
		fi
	fi
}

# measured NAME MEMORY FOLDER FLAGS...: one row.
measured() {
	local name=$1 memory=$2 folder=$3
	shift 3
	dropped "$folder"
	limited "$memory" "${beside:-400000000}" "$data/larger" run -memory "$memory" -disk "$seconds" "$@" "$folder" | row "$name"
}

# within LIMIT NAME FOLDER FLAGS...: a row in a cgroup of exactly that limit: the budget is less by what the program takes.
within() {
	local memory=$(($1 - ownBytes)) beside=$ownBytes
	shift
	local name=$1
	shift
	measured "$name" $memory "$@"
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
emptied() {
	rm -rf "$data/turns.jsonl" "$data/limited.json" "$data/tokens.json" "$data/choices.json" "$data/dense" "$data/packed" \
		"$data/experts" "$data/thirty" "$data/shards" "$data"/*.gguf
}
trap emptied EXIT
emptied

# What the program takes beside its budget: its code, tables, what a measurement of the disk reads into.
ownBytes=180000000
seconds=5s
case $size in
full)
	dense="-layers 15 -hidden 4096 -inner 11008 -heads 32 -key-heads 8"
	experts="-layers 13 -hidden 2048 -inner 768 -heads 32 -key-heads 4 -experts 128 -named 8"
	long="-layers 17 -hidden 8192 -inner 28672 -heads 64 -key-heads 8"
	denseMemory=1610612736 expertsMemory=4294967296 longMemory=2147483648 passes=8 expertPasses=100 batchContext=128
	longTexts=100 peerPasses=5
	;;
half)
	dense="-layers 8 -hidden 4096 -inner 11008 -heads 32 -key-heads 8"
	experts="-layers 10 -hidden 1024 -inner 512 -heads 16 -key-heads 4 -experts 128 -named 8"
	long="-layers 20 -hidden 4096 -inner 11008 -heads 32 -key-heads 8"
	denseMemory=805306368 expertsMemory=1073741824 longMemory=1006632960 passes=6 expertPasses=100 batchContext=64
	longTexts=100 peerPasses=3
	;;
small)
	seconds=0s
	dense="-layers 12 -hidden 512 -inner 1408 -heads 8 -key-heads 4 -vocabulary 4000"
	experts="-layers 8 -hidden 256 -inner 192 -heads 4 -key-heads 2 -vocabulary 4000 -experts 128 -named 8"
	long="-layers 40 -hidden 512 -inner 1408 -heads 8 -key-heads 4 -vocabulary 4000"
	denseMemory=33000000 expertsMemory=265000000 longMemory=290000000 passes=16 expertPasses=100 batchContext=32
	longTexts=100 peerPasses=8
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
	guesses)
		room 7
		made dense $dense
		: > "$data/turns.jsonl"
		for round in $(seq "${ROUNDS:-5}"); do
			measured raw $denseMemory "$data/dense" -passes $passes
			for accepted in 2.2 3.5 5; do
				measured "$accepted tokens a pass" $denseMemory "$data/dense" -passes $passes -rows 8 -accepted $accepted
			done
		done
		round=
		"$data/larger" turns < "$data/turns.jsonl" | tee -a "$results"
		;;
	turns | beside)
		room $([ "$part" = turns ] && echo 30 || echo 24)
		made dense $dense
		[ "$part" = beside ] || packed
		prepared
		: > "$data/turns.jsonl"
		for round in $(seq "${ROUNDS:-5}"); do
			measured raw $denseMemory "$data/dense" -passes $passes
			if [ "$part" = turns ]; then
				measured packed $denseMemory "$data/packed" -passes $passes
				measured "32 sequences" $denseMemory "$data/dense" -passes $passes -sequences 32 -context $batchContext
			fi
			peers --passes $peerPasses
		done
		round=
		"$data/larger" turns < "$data/turns.jsonl" | tee -a "$results"
		rm -rf "$data/packed" "$data/dense.gguf" "$data/shards"
		;;
	batch)
		made dense $dense
		measured "dense, 32 sequences" $denseMemory "$data/dense" -passes $passes -sequences 32 -context $batchContext
		;;
	peers)
		made dense $dense
		prepared
		peers --passes $peerPasses
		! has transformers accelerate ||
			peer "transformers + accelerate, 32 sequences" $denseMemory 900000000 "$python" accelerate "$data/dense" --passes $peerPasses --sequences 32
		rm -rf "$data/dense.gguf" "$data/shards"
		;;
	slots)
		rm -rf "$data/dense"
		made experts $experts
		for memory in $((expertsMemory / 2)) $expertsMemory $((expertsMemory * 2)); do
			measured "experts, one sequence" $memory "$data/experts" -passes $expertPasses -warm 20
		done
		;;
	experts)
		rm -rf "$data/dense"
		room 33
		made experts $experts
		"$data/larger" tokens > "$data/tokens.json"
		! has xllamacpp gguf || "$python" benchmarks/larger_peers.py gguf "$data/experts" "$data/experts.gguf"
		: > "$data/turns.jsonl"
		for round in $(seq "${ROUNDS:-2}"); do
			within $expertsMemory experts "$data/experts" -passes $expertPasses -warm 40 -walk -choices "$data/choices.json"
			[ ! -e "$data/experts.gguf" ] || peer llama.cpp $expertsMemory 0 "$python" llama "$data/experts.gguf" \
				--passes $expertPasses --warm 40 --tokens "$data/tokens.json" --choices "$data/choices.json"
		done
		round=
		"$data/larger" turns < "$data/turns.jsonl" | tee -a "$results"
		rm -f "$data/experts.gguf"
		;;
	thirty)
		rm -rf "$data/dense" "$data/experts"
		room 31
		made thirty $long
		echo "of the file's bytes are allocated: $(du -B1 "$data/thirty/model.safetensors" | cut -f1)" >&2
		within $longMemory "many times larger, $longTexts texts" "$data/thirty" -passes 10 -warm 0 -sequences $longTexts -context 16
		rm -rf "$data/thirty"
		;;
	*)
		echo "no part $part" >&2
		exit 2
		;;
	esac
done
