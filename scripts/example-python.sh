#!/usr/bin/env bash
# Installs the packages of the example for Python into .cache and prints the path of
# the interpreter that has them. What is there already is used.
set -euo pipefail
cd "$(dirname "$0")/.."
from=examples/langgraph/requirements.txt
sum=$(sha256sum <"$from" | cut -c1-16)
dir=$PWD/.cache/example-python/$sum
mkdir -p .cache/example-python
exec 9>.cache/example-python/lock
flock 9
if [ ! -e "$dir/.whole" ]; then
  find .cache/example-python -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
  python3 -m venv "$dir"
  "$dir/bin/pip" install --quiet --disable-pip-version-check --retries 10 --no-deps --only-binary=:all: --requirement "$from" >&2
  touch "$dir/.whole"
fi
echo "$dir/bin/python"
