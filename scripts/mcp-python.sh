#!/usr/bin/env bash
# Runs the client of test/mcp/python with the official MCP SDK for Python, which
# it installs into .cache once. The arguments are the client's.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$PWD/.cache/mcp-python
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
want=$(sha256sum test/mcp/python/requirements.txt)
if [ "$(cat "$cache/made" 2>/dev/null)" != "$want" ]; then
  rm -rf "$cache/venv"
  python3 -m venv "$cache/venv"
  "$cache/venv/bin/pip" install --quiet --disable-pip-version-check --retries 10 --requirement test/mcp/python/requirements.txt
  echo "$want" >"$cache/made"
fi
flock -u 9
exec "$cache/venv/bin/python" -B test/mcp/python/client.py "$@"
