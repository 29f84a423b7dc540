#!/usr/bin/env bash
# Runs every Go test, with real sandboxes and the race detector.
#
#   compile     what is tested, into go's cache
#   run [FLAG…] flags are those of go test
#
# A test that fails is run again by itself, at most twice and only when few
# failed: real sandboxes on a loaded machine miss a time limit now and then.
# What passed only then is listed at the end, so that it is seen and mended; a
# data race is never run again. The events of every test stay in
# .cache/tests.json (gotestsum tool slowest --jsonfile .cache/tests.json).
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache
flags=(-race -tags root)

# In the order in which they begin: what takes longest comes first. gVisor's
# program is tested by itself: it takes minutes to compile for the race
# detector, and the test of its flags starts no goroutine.
packages() {
  scripts/go list "${flags[@]}" ./test/e2e ./internal/core ./internal/driver/oci ./internal/cli ./internal/guest ./test/... github.com/cubbyhq/cubby/... |
    grep -v '/cmd/runsc$'
}

case $1 in
compile)
  # shellcheck disable=SC2046 # one argument a package
  scripts/go list "${flags[@]}" -export -test $(packages) >/dev/null
  ;;
run)
  shift
  again=.cache/tests-run-again.txt
  rm -f "$again"
  CGO_ENABLED=0 scripts/go build -trimpath -modfile=tools/test/go.mod -o .cache/tools/gotestsum gotest.tools/gotestsum
  CGO_ENABLED=0 scripts/go test -trimpath -vet=off "$@" ./cmd/runsc
  tested=$(packages | tr '\n' ' ')
  # By default a program with the race detector sleeps a second before it
  # exits, and the scripts of test/e2e run hundreds. make lint does the vetting.
  PATH="$(scripts/go env GOROOT)/bin:$PATH" GORACE="atexit_sleep_ms=10 ${GORACE:-}" \
    .cache/tools/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg \
    --packages "$tested" --rerun-fails=2 --rerun-fails-max-failures=5 --rerun-fails-abort-on-data-race \
    --rerun-fails-report "$again" --jsonfile .cache/tests.json -- "${flags[@]}" -vet=off -p 3 -timeout 45m "$@"
  if [ -s "$again" ]; then
    echo "tests that did not pass at once:"
    cat "$again"
  fi
  ;;
*)
  echo "usage: $0 compile|run [FLAG…]" >&2
  exit 2
  ;;
esac
