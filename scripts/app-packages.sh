#!/usr/bin/env bash
# Fetches the packages of an app of test/e2e/testdata/apps into .cache and prints
# the path of a tar with them, for a sandbox. What is there already is used.
# Usage: scripts/app-packages.sh vite|opencode|next|jupyter
set -euo pipefail
cd "$(dirname "$0")/.."
app=${1:?which app}
from=test/e2e/testdata/apps/$app
pins=package-lock.json
[ "$app" != jupyter ] || pins=requirements.txt
sum=$(sha256sum <"$from/$pins" | cut -c1-16)
tar=$PWD/.cache/apps/$app-$sum.tar
mkdir -p .cache/apps
exec 9>".cache/apps/$app.lock"
flock 9
if [ ! -e "$tar" ]; then
  rm -rf .cache/apps/"$app"-* ".cache/apps/$app"
  mkdir ".cache/apps/$app"
  if [ "$pins" = package-lock.json ]; then
    cp "$from"/package*.json ".cache/apps/$app"
    # Nothing that is fetched runs here, and it is what the lock file says.
    npm ci --prefix ".cache/apps/$app" --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries 10 >&2
  else
    # For the Python of the image base. Wheels are not run here either.
    python3 -m pip download --quiet --disable-pip-version-check --retries 10 --no-deps --only-binary=:all: --python-version 3.13 \
      --platform "manylinux_2_28_$(uname -m)" --platform "manylinux_2_17_$(uname -m)" --platform "manylinux2014_$(uname -m)" \
      --dest ".cache/apps/$app/wheels" --requirement "$from/requirements.txt" >&2
  fi
  tar --create --file "$tar.part" --owner=0 --group=0 -C ".cache/apps/$app" .
  mv "$tar.part" "$tar"
  rm -rf ".cache/apps/$app"
fi
echo "$tar"
