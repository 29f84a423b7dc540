#!/usr/bin/env bash
# Installs the MCP clients of tools/inspector into .cache, with the Node that
# they need, and prints the directory. What is there already is used.
set -euo pipefail
cd "$(dirname "$0")/.."
sum=$(sha256sum tools/inspector/package-lock.json | cut -c1-16)
dir=$PWD/.cache/inspector/$sum
mkdir -p .cache/inspector
exec 9>.cache/inspector/lock
flock 9
if [ ! -e "$dir/ready" ]; then
  find .cache/inspector -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
  mkdir "$dir"
  cp tools/inspector/package.json tools/inspector/package-lock.json "$dir"
  # Nothing that is installed runs here, and what is fetched is what the lock
  # file says.
  npm ci --prefix "$dir" --ignore-scripts --no-audit --no-fund --loglevel=error >&2
  touch "$dir/ready"
fi
echo "$dir"
