#!/usr/bin/env bash
# Installs what the tests of LangGraph's REST need into .cache and prints its path:
# node (the official SDKs, useStream, and a model that answers them), oracle
# (LangGraph's own server) or python (the official SDK). What is there already is used.
# Usage: scripts/langgraph-packages.sh node|oracle|python
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?which}
from=test/langgraph/$what
pins=package-lock.json
[ "$what" != python ] || pins=requirements.txt
sum=$(sha256sum <"$from/$pins" | cut -c1-16)
cache=$PWD/.cache/langgraph
dir=$cache/$what-$sum
mkdir -p "$cache"
exec 9>"$cache/$what.lock"
flock 9
if [ ! -e "$dir/.whole" ]; then
  rm -rf "$cache/$what"-*
  mkdir "$dir"
  if [ "$what" = python ]; then
    python3 -m venv "$dir"
    "$dir/bin/pip" install --quiet --disable-pip-version-check --retries 10 --requirement "$from/requirements.txt" >&2
  else
    cp "$from"/package*.json "$dir"
    # Nothing that is fetched runs while it is installed, and it is what the lock file says.
    npm ci --prefix "$dir" --ignore-scripts --legacy-peer-deps --no-audit --no-fund --loglevel=error --fetch-retries 10 >&2
  fi
  touch "$dir/.whole"
fi
echo "$dir"
