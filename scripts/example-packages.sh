#!/usr/bin/env bash
# Installs the packages of the examples for Node, and of the model that answers them in
# tests, into .cache and prints the directory, which has one of each. What is there
# already is used.
set -euo pipefail
cd "$(dirname "$0")/.."
from=(examples/*/package.json test/e2e/testdata/model/package.json)
sum=$(cat "${from[@]/package.json/package-lock.json}" | sha256sum | cut -c1-16)
dir=$PWD/.cache/examples/$sum
mkdir -p .cache/examples
exec 9>.cache/examples/lock
flock 9
if [ ! -e "$dir/.whole" ]; then
  find .cache/examples -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
  for package in "${from[@]}"; do
    to=$dir/$(basename "$(dirname "$package")")
    mkdir -p "$to"
    cp "$package" "${package/package.json/package-lock.json}" "$to"
    # Nothing that is fetched runs here, and it is what the lock file says.
    npm ci --prefix "$to" --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries 10 >&2
  done
  touch "$dir/.whole"
fi
echo "$dir"
