#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each, also those after one
# that failed.
set -euo pipefail
cd "$(dirname "$0")/.."
go=$PWD/scripts/go
failed=()
for file in $(git ls-files '*_test.go' | xargs grep -lE '^func Fuzz'); do
  for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
    echo "== $(dirname "$file") $target"
    # client is a module of its own.
    (cd "$(dirname "$file")" && "$go" test . -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 5x) || failed+=("$(dirname "$file") $target")
  done
done
[ "${#failed[@]}" = 0 ] || { printf 'failed: %s\n' "${failed[@]}" >&2; exit 1; }
