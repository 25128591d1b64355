#!/usr/bin/env bash
# Builds what a release has, offline: an archive for each system, what is in each program (CycloneDX), and SHA256SUMS of all. The same
# commit and the same Go give the same bytes. goreleaser, where it is there, makes the same by .goreleaser.yaml.
#   deploy/release.sh [VERSION] [SYSTEM/MACHINE...]     into dist/release
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
shift || true
targets=("$@")
((${#targets[@]})) || targets=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64)
out=dist/release
rm -rf "$out"
mkdir -p "$out"
when=$(git log -1 --format=%ct 2>/dev/null || echo 0)
for target in "${targets[@]}"; do
	system=${target%/*} machine=${target#*/}
	name=optimem_${version#v}_${system}_${machine}
	work=$out/$name
	program=$work/optimem
	[[ $system != windows ]] || program+=.exe
	mkdir "$work"
	CGO_ENABLED=0 GOOS=$system GOARCH=$machine GOFLAGS= go build -trimpath -buildvcs=false -ldflags "-s -w -X main.linkedVersion=$version" -o "$program" ./cmd/optimem
	cp LICENSE README.md CHANGELOG.md "$work"
	# What make cubins made. The program finds it beside itself.
	if [[ $system == linux && -d dist/cubins ]]; then
		cp -r dist/cubins "$work/cubins"
	fi
	deploy/sbom.sh "$program" "$version" >"$out/$name.cdx.json"
	tar --sort=name --mtime="@$when" --owner=0 --group=0 --numeric-owner -C "$out" -c "$name" | gzip -n -9 >"$out/$name.tar.gz"
	rm -r "$work"
done
(cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
