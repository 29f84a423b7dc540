#!/usr/bin/env bash
# Fails when a Go file of ours is not as gofmt writes it.
set -euo pipefail
cd "$(dirname "$0")/.."
gofmt=$(scripts/go env GOROOT)/bin/gofmt
files=$(git ls-files '*.go' | grep -v ^api/gen/)
# shellcheck disable=SC2086 # one argument a file
wrong=$("$gofmt" -l $files)
[ -z "$wrong" ] || { echo "$wrong"; echo "run gofmt -w on these" >&2; exit 1; }
