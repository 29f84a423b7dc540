#!/usr/bin/env bash
# Regenerates everything that is made from something else: under api/ the Go
# code of the guest protocol, the OpenAPI document of the REST door; its
# types and agentbox's messages in the TypeScript SDK; the blocking half of the
# Python SDK; the numbers of the system calls that containers may make; and the
# filter of those that gVisor's kernel may make.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.cache/tools
mkdir -p "$tools"
# As make builds, out of the same cache.
export CGO_ENABLED=0 GOFLAGS=-trimpath
(cd tools/gen && GOBIN=$tools ../../scripts/go install \
  github.com/bufbuild/buf/cmd/buf \
  google.golang.org/protobuf/cmd/protoc-gen-go \
  connectrpc.com/connect/cmd/protoc-gen-connect-go)
PATH=$tools:$PATH buf lint
PATH=$tools:$PATH buf generate
scripts/sdk-typescript.sh setup
(cd sdk/typescript && "$tools/buf" generate ../../api/proto --path ../../api/proto/sandbox)
scripts/go test -vet=off ./internal/daemon -run '^TestOpenAPI$' -update >/dev/null
scripts/go test -vet=off ./internal/driver/oci/seccomp -run '^TestNumbers$' -update >/dev/null
modfile=$(scripts/gvisor.sh)
scripts/go test -modfile="$modfile" -vet=off ./cmd/runsc -run '^TestFilterIsThatOfItsRules$' -update >/dev/null
node_modules=$(scripts/openapi-tools.sh)/node_modules
"$node_modules/.bin/openapi-typescript" api/openapi.json --output sdk/typescript/src/openapi.ts >/dev/null
python3 sdk/python/tools/unasync.py
