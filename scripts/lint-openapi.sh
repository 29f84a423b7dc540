#!/usr/bin/env bash
# Redocly and Spectral find neither errors nor warnings in api/openapi.json.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(scripts/openapi-tools.sh)
export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true
"$tools/node_modules/.bin/redocly" lint --config tools/openapi/redocly.yaml --format stylish api/openapi.json >&2
"$tools/node_modules/.bin/spectral" lint --ruleset tools/openapi/spectral.yaml --fail-severity warn --quiet api/openapi.json >&2
