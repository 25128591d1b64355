#!/bin/sh
# Serves the model simple and runs those of Triton's own examples that infer with it, as they are (github.com/triton-inference-server/client,
# src/python/examples). PYTHON has tritonclient[all], TORCH_PYTHON torch, by which the model is made:
#   serve/testdata/triton_examples.sh PYTHON TORCH_PYTHON EXAMPLES > serve/testdata/triton_examples.txt
# Those that are not here want a server called triton, other models, shared memory or a configuration in a request.
set -e
python=$1 torch=$2 examples=$3
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
mkdir "$work/models"
"$torch" -W ignore "$root/serve/testdata/make_simple.py" "$work/models/simple.pt2" 2>"$work/log"
(cd "$root" && go build -o "$work/optimem" ./cmd/optimem)
"$work/optimem" serve "$work/models" --memory 64MiB --listen 127.0.0.1:18000 --admin 127.0.0.1:18001 2>"$work/log" &
server=$!
trap 'kill $server; rm -rf "$work"' EXIT
until grep -q administration "$work/log"; do sleep 0.1; done
"$python" -c 'import importlib.metadata as m; print("tritonclient", m.version("tritonclient"))'
for name in simple_http_infer_client simple_http_async_infer_client simple_http_aio_infer_client simple_grpc_infer_client \
	simple_grpc_async_infer_client simple_grpc_aio_infer_client simple_grpc_keepalive_client simple_grpc_custom_args_client \
	grpc_explicit_int_content_client; do
	if "$python" "$examples/$name.py" -u 127.0.0.1:18000 >"$work/out" 2>&1; then
		echo "$name.py: passes"
	else
		echo "$name.py: FAILED $(tail -1 "$work/out")"
	fi
done
