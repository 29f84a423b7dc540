#!/usr/bin/env bash
# Runs gRPC's own clients for Python and Node against a daemon. Usage:
# scripts/grpc-clients.sh python|node HOST:PORT PACKAGE, which pip can install
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$PWD/.cache/grpc-clients/$1
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
case $1 in
python)
  want=$(sha256sum test/grpc/python/requirements.txt api/proto/sandbox/v1/sandbox.proto)
  if [ "$(cat "$cache/made" 2>/dev/null)" != "$want" ]; then
    rm -rf "$cache/venv" "$cache/stubs"
    python3 -m venv "$cache/venv"
    "$cache/venv/bin/pip" install --quiet --disable-pip-version-check --retries 10 --requirement test/grpc/python/requirements.txt
    mkdir "$cache/stubs"
    "$cache/venv/bin/python" -m grpc_tools.protoc -I api/proto --python_out="$cache/stubs" --grpc_python_out="$cache/stubs" \
      api/proto/sandbox/v1/sandbox.proto
    echo "$want" >"$cache/made"
  fi
  exec "$cache/venv/bin/python" -B test/grpc/python/client.py "$2" "$cache/stubs" "$3"
  ;;
node)
  want=$(sha256sum test/grpc/node/package-lock.json)
  if [ "$(cat "$cache/made" 2>/dev/null)" != "$want" ]; then
    rm -rf "$cache/node_modules"
    cp test/grpc/node/package.json test/grpc/node/package-lock.json "$cache"
    npm ci --prefix "$cache" --no-audit --no-fund --ignore-scripts --fetch-retries 10 --loglevel error >/dev/null
    echo "$want" >"$cache/made"
  fi
  # Modules are found beside the program.
  cp test/grpc/node/client.mjs "$cache"
  exec node "$cache/client.mjs" "$2" "$PWD/api/proto" "$3"
  ;;
*)
  sed -n '2,4p' "$0" >&2
  exit 2
  ;;
esac
