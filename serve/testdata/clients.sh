#!/bin/sh
# Serves the models of the repository and asks with the clients of a Python that has tritonclient[all]:
#   serve/testdata/clients.sh PYTHON [KSERVE_PYTHON] > serve/testdata/clients.txt
# and with KServe's, where there is a second Python that has kserve.
set -e
python=${1:-python3}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
mkdir "$work/models"
cp "$root/examples/digits/digits.pt2" "$work/models"
cp -r "$root/generate/testdata/chat" "$work/models/chat"
(cd "$root" && go build -o "$work/optimem" ./cmd/optimem)
"$work/optimem" serve "$work/models" --memory 64MiB --listen 127.0.0.1:18000 --admin 127.0.0.1:18001 2>"$work/log" &
server=$!
trap 'kill $server; rm -rf "$work"' EXIT
until grep -q administration "$work/log"; do sleep 0.1; done
"$python" -c 'import importlib.metadata as m
for p in ("tritonclient", "grpcio", "aiohttp", "geventhttpclient", "openai"):
    try: print(p, m.version(p))
    except m.PackageNotFoundError: pass'
"$python" "$root/serve/testdata/clients.py" 127.0.0.1:18000 127.0.0.1:18001 "$root/examples/digits/pictures.npy"
[ -z "$2" ] || "$2" "$root/serve/testdata/kserve_client.py" 127.0.0.1:18000 "$root/examples/digits/pictures.npy"
