#!/usr/bin/env bash
# The Python SDK in sdk/python. Usage: scripts/sdk-python.sh test|build
#
#   test   formatting, lint, types, and the tests against a real daemon: root,
#          with CUBBY_TEST_BIN and CUBBY_TEST_IMAGE_DIR as for make test
#   build  wheel and sdist in .cache/sdk-python/dist, and that the wheel works
#          in an environment of its own
#
# PYTHON names another interpreter than python3; 3.10 and later serve.
set -euo pipefail
cd "$(dirname "$0")/.."
sdk=$PWD/sdk/python
python=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV

version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  echo "$python is $version; the SDK needs 3.10: name another with PYTHON" >&2
  exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  echo "$python cannot make environments: run scripts/setup.sh test, or apt-get install python3-venv" >&2
  exit 1
fi

cache=$PWD/.cache/sdk-python/$version
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9

# The environment is made anew when what belongs into it changed, or when it
# was not finished.
want=$({ "$python" -c 'import sys; print(sys.executable)'; cat "$sdk/requirements-test.txt"; } | sha256sum)
venv=$cache/venv
if [ "$(cat "$venv/made" 2>/dev/null)" != "$want" ]; then
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/pip" install --quiet --retries 10 --requirement "$sdk/requirements-test.txt"
  echo "$want" >"$venv/made"
fi

run_tests() {
  "$venv/bin/python" "$sdk/tools/unasync.py" --check
  cd "$sdk"
  "$venv/bin/ruff" format --no-cache --quiet --diff . ../../examples
  "$venv/bin/ruff" check --no-cache --quiet . ../../examples
  "$venv/bin/mypy" --cache-dir "$cache/mypy" --no-error-summary
  "$venv/bin/pip" install --quiet --no-deps --no-build-isolation --force-reinstall .
  "$venv/bin/pytest" --quiet "$@"
}

build() {
  local dist=$cache/dist clean=$cache/clean
  rm -rf "$dist" "$clean"
  # The wheel is made out of the sdist, so both are proven complete.
  "$venv/bin/python" -m build --no-isolation --outdir "$dist" "$sdk" >/dev/null
  "$python" -m venv "$clean"
  "$clean/bin/pip" install --quiet --retries 10 --constraint "$sdk/requirements-test.txt" "$dist"/*.whl
  cd /
  "$clean/bin/python" -I - <<'PY'
import importlib.metadata as metadata
import cubby, cubby.compat.agentbox, cubby.compat.ecs_sandbox, cubby.compat.sandbox_agent
files = {str(f) for f in metadata.files("cubby-sdk")}
assert "cubby/py.typed" in files, files
assert any(f.endswith("LICENSE") for f in files), files
assert metadata.version("cubby-sdk") == cubby.__version__
with cubby.Client("http://127.0.0.1:9") as client:
    try:
        client.health()
    except cubby.UnreachableError:
        pass
PY
  rm -rf "$clean"
  ls "$dist"
}

case ${1:-} in
  test) shift; run_tests "$@" ;;
  build) build ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
