#!/usr/bin/env bash
# The TypeScript SDK in sdk/typescript. Usage: scripts/sdk-typescript.sh setup|test|build
#
#   setup  what test and build need: the packages of package-lock.json
#   test   formatting, lint, types, and the tests against a real daemon: root,
#          with CUBBY_TEST_BIN and CUBBY_TEST_IMAGE_DIR as for make test
#   build  the package in .cache/sdk-typescript, and that it works where it is
#          installed, with its types
set -euo pipefail
cd "$(dirname "$0")/.."
sdk=$PWD/sdk/typescript
cache=$PWD/.cache/sdk-typescript
export npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false npm_config_loglevel=error

version=$(node --version 2>/dev/null || true)
if ! node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 3) ? 0 : 1)' 2>/dev/null; then
  echo "node is ${version:-missing}; the SDK needs 20.3 or later" >&2
  exit 1
fi

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9

# Installed anew when what belongs there changed, or when it was not finished.
setup() {
  local want
  want=$({ echo "$version"; cat "$sdk/package.json" "$sdk/package-lock.json"; } | sha256sum)
  [ "$(cat "$sdk/node_modules/.made" 2>/dev/null)" = "$want" ] && return
  npm ci --prefix "$sdk" --ignore-scripts --fetch-retries 10 >/dev/null
  echo "$want" >"$sdk/node_modules/.made"
}

run_tests() {
  cd "$sdk"
  node_modules/.bin/biome check --error-on-warnings --reporter=summary .
  node_modules/.bin/tsc
  compile
  node_modules/.bin/vitest run "$@"
}

# The package as modules, and the same files for require(), with their types.
compile() {
  rm -rf "$sdk/dist"
  (
    cd "$sdk"
    node_modules/.bin/tsc --project tsconfig.build.json
    find src -name '*.ts' -exec node_modules/.bin/esbuild --outbase=src --outdir=dist/cjs --format=cjs --platform=node \
      --target=node20.3 --log-level=warning {} +
    (cd dist && find . -path ./cjs -prune -o -name '*.d.ts' -exec cp --parents -t cjs {} +)
    echo '{"type":"commonjs","sideEffects":["./index.js","./node.js"]}' >dist/cjs/package.json
  )
}

build() {
  local into=$cache/installed
  compile
  rm -rf "$cache"/*.tgz "$into"
  (cd "$sdk" && npm pack --ignore-scripts --pack-destination "$cache" >/dev/null)
  mkdir "$into"
  (
    cd "$into"
    echo '{"name":"installed","private":true,"type":"module"}' >package.json
    npm install --prefer-offline --ignore-scripts "$cache"/*.tgz >/dev/null
    [ "$(ls node_modules | tr '\n' ' ')" = '@bufbuild @connectrpc @cubby eventsource-parser modern-tar ' ] # what comes with it
    [ -e node_modules/@cubby/sdk/LICENSE ]
    cat >main.mts <<'TS'
import { Client, type Isolation, Sandbox, UnreachableError, version } from '@cubby/sdk';
import { Sandbox as AgentboxSandbox } from '@cubby/sdk/agentbox';
import type { paths } from '@cubby/sdk/openapi';

const client: Client = new Client({ baseUrl: 'http://127.0.0.1:2', retries: 0 });
const met: unknown = await client.health().then(
  () => undefined,
  (e: unknown) => e,
);
const id: string | null = new AgentboxSandbox().sessionId;
const isolation: Isolation = 'gvisor';
type Made = paths['/v1/sandboxes']['post']['responses'][201]['content']['application/json'];
const made: Pick<Made, 'isolation'> = { isolation };
if (!(met instanceof UnreachableError) || id !== null || !/^\d+\.\d+\.\d+$/.test(version) || !made) throw met;
if (typeof Sandbox.create !== 'function') throw new Error('Sandbox.create');
TS
    cat >main.cts <<'TS'
import { Client, type Isolation, Sandbox, UnreachableError } from '@cubby/sdk';
import { Sandbox as AgentboxSandbox } from '@cubby/sdk/agentbox';

const isolation: Isolation = 'gvisor';
const id: string | null = new AgentboxSandbox().sessionId;
new Client({ baseUrl: 'http://127.0.0.1:2', retries: 0 }).health().catch((e: unknown) => {
  if (!(e instanceof UnreachableError) || id !== null || !isolation || typeof Sandbox.create !== 'function') throw e;
});
TS
    ln -s "$sdk/node_modules/@types" "$sdk/node_modules/undici-types" node_modules/
    "$sdk/node_modules/.bin/tsc" --strict --target es2022 --module nodenext --types node main.mts main.cts
    node main.mjs
    node main.cjs
  )
  rm -rf "$into"
  ls "$cache"/*.tgz
}

case ${1:-} in
  setup) setup ;;
  test) shift; setup; run_tests "$@" ;;
  build) setup; build ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
