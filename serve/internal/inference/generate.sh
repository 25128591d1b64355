#!/bin/sh
# Makes gen_inference.pb.go of inference.proto. It needs protoc, as PyPI's grpcio-tools has it for instance, and
#   go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
set -e
cd "$(dirname "$0")"
${PROTOC:-protoc} -I . --go_out=. --go_opt=paths=source_relative inference.proto
mv inference.pb.go gen_inference.pb.go
