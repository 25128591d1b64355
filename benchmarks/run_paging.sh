#!/usr/bin/env bash
# A model of 6.4 GB with 1.5 GiB of memory: optimem in page and auto mode, PyTorch over a mapped file, and the disk's own
# rate, in turns. It makes a memory group (cgroup v1) and so wants root; without one it says so and runs without a limit.
#
#	OPTIMEM_PYTHON=python3 benchmarks/run_paging.sh [FOLDER]      # 7 GB free in FOLDER, default $TMPDIR
set -euo pipefail
cd "$(dirname "$0")/.."
python=${OPTIMEM_PYTHON:-python3}
folder=${1:-${TMPDIR:-/tmp}}
limit=$((1536 * 1024 * 1024))
rounds=${ROUNDS:-3}
go build -o "$folder/optimem-bench" ./cmd/optimem
go build -o "$folder/paging-bench" ./benchmarks/paging
file=$folder/paging-24x8192.pt
[[ -f $file ]] || "$folder/optimem-bench" synth mlp --layers 24 --width 8192 --seed 1 -o "$file" 2>/dev/null

group=/sys/fs/cgroup/memory/optimem-bench
if mkdir -p "$group" 2>/dev/null && echo "$limit" >"$group/memory.limit_in_bytes" 2>/dev/null; then
	echo "memory limit: $limit bytes (cgroup v1)"
else
	group=
	echo "memory limit: none, no cgroup v1 memory controller that can be written"
fi
limited() {
	if [[ -n $group ]]; then
		(echo "$BASHPID" >"$group/cgroup.procs" && exec "$@")
	else
		"$@"
	fi
}
cold() {
	sync
	echo 3 2>/dev/null >/proc/sys/vm/drop_caches || echo "(page cache not dropped)"
}
date -u
grep -m1 'model name' /proc/cpuinfo || true
echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
for rows in 1 64; do
	for round in $(seq "$rounds"); do
		echo "-- rows $rows, round $round"
		cold
		echo "disk, O_DIRECT: $(dd if="$file" of=/dev/null bs=8M iflag=direct 2>&1 | tail -1)"
		for mode in page auto; do
			cold
			echo "optimem $mode: $(limited "$folder/paging-bench" -mode $mode -memory $((limit - 128 * 1024 * 1024)) -rows "$rows" -runs 3 "$file")"
		done
		cold
		echo "pytorch mmap: $(limited "$python" benchmarks/peers/paging_mmap.py "$file" "$rows" 3 2)"
	done
done
