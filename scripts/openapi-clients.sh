#!/usr/bin/env bash
# Generates a client in TypeScript and one in Python of api/openapi.json,
# compiles both, and runs the programs of test/openapi with them against the
# daemon at the URL that is the argument.
set -euo pipefail
cd "$(dirname "$0")/.."
url=$1
tools=$(scripts/openapi-tools.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

typescript() {
  mkdir "$work/node"
  ln -s "$tools/node_modules" "$work/node/node_modules"
  echo '{"type":"module"}' >"$work/node/package.json"
  cp test/openapi/node/client.ts "$work/node"
  "$tools/node_modules/.bin/openapi-typescript" api/openapi.json --output "$work/node/schema.ts" >/dev/null
  (cd "$work/node" && node_modules/.bin/tsc --strict --target es2022 --module nodenext --skipLibCheck --types node client.ts)
  node "$work/node/client.js" "$url"
}

python() {
  # A warning says that an operation or a type was left out.
  "$tools/python/bin/openapi-python-client" generate --path api/openapi.json --meta none --fail-on-warning \
    --config test/openapi/python/config.yml --output-path "$work/python/cubby_api" >"$work/python.log" 2>&1 || { cat "$work/python.log" >&2; return 1; }
  "$tools/python/bin/python" -m compileall -q "$work/python/cubby_api"
  PYTHONPATH=$work/python "$tools/python/bin/python" -B test/openapi/python/client.py "$url"
}

mkdir "$work/python"
typescript
python
