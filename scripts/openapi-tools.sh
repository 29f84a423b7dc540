#!/usr/bin/env bash
# Installs the linters and the generator of tools/openapi into .cache and prints
# the directory. What is there already is used.
set -euo pipefail
cd "$(dirname "$0")/.."
sum=$(cat tools/openapi/package-lock.json tools/openapi/requirements.txt | sha256sum | cut -c1-16)
dir=$PWD/.cache/openapi/$sum
mkdir -p .cache/openapi
exec 9>.cache/openapi/lock
flock 9
if [ ! -e "$dir/ready" ]; then
  find .cache/openapi -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
  mkdir "$dir"
  cp tools/openapi/package.json tools/openapi/package-lock.json "$dir"
  npm ci --prefix "$dir" --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries 10 >&2
  python3 -m venv "$dir/python"
  "$dir/python/bin/pip" install --quiet --disable-pip-version-check --retries 10 --requirement tools/openapi/requirements.txt >&2
  touch "$dir/ready"
fi
echo "$dir"
