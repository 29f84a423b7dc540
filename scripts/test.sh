#!/usr/bin/env bash
# Runs every Go test with the given flags of go test. A test that fails is run
# again by itself, at most twice and only when few failed: real sandboxes on a
# loaded machine miss a time limit now and then. What passed only then is
# listed at the end, so that it is seen and mended; a data race is never run
# again. The events of every test stay in .cache/tests.json
# (gotestsum tool slowest --jsonfile .cache/tests.json).
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache
again=.cache/tests-run-again.txt
rm -f "$again"
scripts/go build -modfile=tools/test/go.mod -o .cache/tools/gotestsum gotest.tools/gotestsum
PATH="$(scripts/go env GOROOT)/bin:$PATH" .cache/tools/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg \
  --packages ./... --rerun-fails=2 --rerun-fails-max-failures=5 --rerun-fails-abort-on-data-race \
  --rerun-fails-report "$again" --jsonfile .cache/tests.json -- "$@"
if [ -s "$again" ]; then
  echo "tests that did not pass at once:"
  cat "$again"
fi
