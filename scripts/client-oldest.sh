#!/usr/bin/env bash
# Compiles the Go SDK and runs its tests with the oldest Go that it promises,
# and uses it from a module outside of the repository. The toolchain comes from
# the Go module proxy.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
version=$(sed -n 's/^go //p' client/go.mod)
export GOTOOLCHAIN=go$version GOFLAGS=-mod=mod
outside=$(mktemp -d)
trap 'rm -rf "$outside"' EXIT
cd "$outside"
cat >main.go <<'GO'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cubbyhq/cubby/client"
)

func main() {
	_, err := client.Create(context.Background(), client.CreateOptions{Isolation: client.GVisor})
	if !errors.Is(err, client.Unreachable) {
		fmt.Println("want an unreachable daemon:", err)
		os.Exit(1)
	}
}
GO
cat >go.mod <<GOMOD
module example.com/outside

go $version

require github.com/cubbyhq/cubby/client v0.0.0

replace github.com/cubbyhq/cubby/client => $root/client
GOMOD
go mod tidy
go vet ./...
CUBBY_URL=http://127.0.0.1:9 go run .
cd "$root/client"
go vet ./...
go test -count=1 ./...
echo "the Go SDK works with $(go version)"
