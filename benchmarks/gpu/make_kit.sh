#!/usr/bin/env bash
# Builds the kit for machines with a GPU: a folder that needs no Go. See README.md beside this file.
#
#	benchmarks/gpu/make_kit.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."
kit=${1:-dist/gpu-kit}
most=$((64 * 1024 * 1024))
rm -rf "$kit"
mkdir -p "$kit/bin" "$kit/models/testdata" "$kit/device/devicetest/testdata"
export GOOS=linux GOARCH="${GOARCH:-amd64}" CGO_ENABLED=0
go build -trimpath -ldflags '-s -w' -o "$kit/bin/optimem" ./cmd/optimem
go build -trimpath -ldflags '-s -w' -o "$kit/bin/paging" ./benchmarks/paging
go build -trimpath -ldflags '-s -w' -o "$kit/bin/larger" ./benchmarks/larger
go test -c -trimpath -ldflags '-s -w' -o "$kit/bin/cuda.test" ./cuda
go test -c -trimpath -ldflags '-s -w' -o "$kit/bin/models.test" ./models
gzip -n "$kit"/bin/*
cp -R models/testdata/zoo "$kit/models/testdata/zoo"
cp device/devicetest/testdata/*.zst "$kit/device/devicetest/testdata/"
cp benchmarks/gpu/{run.sh,kit.py,parity.py,peers.py,single_ops.py} benchmarks/peers/make_llama.py models/testdata/{zoo_archive,zoo_program}.py device/devicetest/testdata/calls.py benchmarks/gpu/MEASURE.md "$kit/"
{
	git rev-parse --short HEAD 2>/dev/null || echo "no commit"
	git diff --quiet 2>/dev/null || echo "with changes"
} | paste -sd' ' >"$kit/BUILD"
bytes=$(find "$kit" -type f -print0 | xargs -0 cat | wc -c)
echo "$kit: $bytes bytes of $most"
((bytes <= most))
