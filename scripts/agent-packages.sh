#!/usr/bin/env bash
# Installs the coding agents of test/agents, and the model that answers them, into
# .cache and prints the path of the directory. What is there already is used.
set -euo pipefail
cd "$(dirname "$0")/.."
from=test/agents
sum=$(sha256sum <"$from/package-lock.json" | cut -c1-16)
dir=$PWD/.cache/agents/$sum
mkdir -p .cache/agents
exec 9>.cache/agents/lock
flock 9
if [ ! -e "$dir/.whole" ]; then
  find .cache/agents -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
  mkdir "$dir"
  cp "$from"/package*.json "$dir"
  # Nothing that is fetched runs here, and it is what the lock file says.
  npm ci --prefix "$dir" --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries 10 >&2
  touch "$dir/.whole"
fi
echo "$dir"
