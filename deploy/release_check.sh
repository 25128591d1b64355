#!/usr/bin/env bash
# Builds what is released as those who release it do, and runs what comes of it: goreleaser's snapshot for all systems, and the
# Dockerfiles with buildah, which needs no daemon. What cannot be checked, since a tool is not there, is said at the end.
#   deploy/release_check.sh [goreleaser] [images]      also: make release-check
# Images are built on what registries have (STAND_IN=1: on stand-ins made of this machine's Go and of Debian's packages).
set -euo pipefail
cd "$(dirname "$0")/.."
goreleaser=github.com/goreleaser/goreleaser/v2@v2.16.0
skipped=()
skip() {
	skipped+=("$1")
	echo "NOT CHECKED: $1"
}
work=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server" || true; wait; rm -rf "$work"' EXIT

check_goreleaser() {
	local name program
	if ! GOBIN=$work GOFLAGS= go install "$goreleaser" 2>"$work/why"; then
		skip "goreleaser: $(tail -1 "$work/why")"
		return
	fi
	"$work/goreleaser" check
	"$work/goreleaser" release --snapshot --clean
	for name in linux_amd64 linux_arm64 darwin_amd64 darwin_arm64 windows_amd64; do
		program=optimem
		[[ $name != windows_* ]] || program+=.exe
		tar -tzf dist/optimem_*_"$name".tar.gz | grep -q "/$program\$" || { echo "no program for $name"; return 1; }
		[[ -s $(echo dist/optimem_*_"$name".cdx.json) ]] || { echo "no parts of $name"; return 1; }
	done
	(cd dist && sha256sum --quiet -c SHA256SUMS)
	if [[ $(uname -sm) == "Linux x86_64" ]]; then
		tar -xzf dist/optimem_*_linux_amd64.tar.gz -C "$work"
		serves "$work"/optimem_*_linux_amd64/optimem serve
	fi
}

# serves COMMAND...: what the command serves answers, and ends when it is told to.
serves() {
	local models=$work/models
	mkdir -p "$models"
	cp examples/digits/digits.pt2 "$models"
	"$@" "${directory-$models}" --memory 64MiB --listen 127.0.0.1:18300 >"$work/log" 2>&1 &
	server=$!
	for _ in $(seq 300); do
		! curl -sf 127.0.0.1:18300/v2/models/digits/ready >"$work/ready" || break
		kill -0 "$server" 2>/dev/null || { cat "$work/log"; return 1; }
		sleep 0.2
	done
	cat "$work/ready"
	kill "$server"
	wait "$server" || { cat "$work/log"; return 1; }
	server=
	grep -q '"ready":true' "$work/ready"
}

# in_image NAME: runs the image's program as the image says it is run, without what is around it.
in_image() {
	local root
	root=$(b mount "$1")
	echo "$1 has $(find "$root" -xdev -type f | wc -l) files, $(du -sm "$root" | cut -f1) MiB"
	mkdir -p "$root/models"
	cp examples/digits/digits.pt2 "$root/models"
	directory=/models serves chroot --userspec=65532:65532 "$root" /optimem serve
	b umount "$1"
}

b() { buildah --storage-driver vfs --root "$work/storage" --runroot "$work/run" "$@"; }

# stand_ins makes images with the names of the Dockerfiles' bases: a shell and this machine's Go, and Debian's libraries.
stand_ins() {
	local c root package
	c=$(b from scratch) && root=$(b mount "$c")
	mkdir -p "$root"/{bin,tmp,usr/local,etc/ssl,root,go}
	chmod 1777 "$root/tmp"
	cp "$(command -v busybox)" "$root/bin/sh"
	cp -r "$(go env GOROOT)" "$root/usr/local/go"
	cp -r /etc/ssl/certs "$root/etc/ssl"
	b config --env PATH=/usr/local/go/bin:/bin --env HOME=/root --env GOPATH=/go --env GOTOOLCHAIN=local --env "GOPROXY=$(go env GOPROXY)" "$c"
	b commit -q "$c" docker.io/library/golang:1.26 && b rm "$c" >/dev/null
	c=$(b from scratch) && root=$(b mount "$c")
	for package in libc6 libgcc-s1 libstdc++6; do
		(cd "$work" && apt-get download -qq "$package" && dpkg -x "$package"_*.deb "$root")
	done
	mkdir -p "$root/tmp" && chmod 1777 "$root/tmp"
	b config --user 65532:65532 "$c"
	b commit -q "$c" gcr.io/distroless/cc-debian12:nonroot && b rm "$c" >/dev/null
}

check_images() {
	local file c more=()
	if ! command -v buildah >/dev/null; then
		skip "images: there is no buildah"
		return
	fi
	if ((UID != 0)); then
		skip "images: what is built is run in a root of its own, which needs root"
		return
	fi
	if [[ -n ${STAND_IN-} ]]; then
		stand_ins
		more=(--pull=never --volume "$(go env GOMODCACHE):/go/pkg/mod" --volume "$(go env GOCACHE):/root/.cache/go-build")
	elif ! b pull -q docker.io/library/golang:1.26 >/dev/null 2>"$work/why"; then
		skip "images: $(tail -1 "$work/why") (STAND_IN=1 builds on stand-ins)"
		return
	fi
	for file in deploy/Dockerfile deploy/Dockerfile.cuda; do
		b build --isolation chroot "${more[@]}" -f "$file" -t "optimem:${file##*/}" .
		b inspect --type image --format '{{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}' "optimem:${file##*/}"
		c=$(b from --pull=never "optimem:${file##*/}")
		in_image "$c"
		b rm "$c" >/dev/null
	done
}

(($#)) || set -- goreleaser images
for what in "$@"; do
	printf '\n== %s\n' "$what"
	"check_$what"
done
for what in "${skipped[@]}"; do
	echo "not checked: $what"
done
