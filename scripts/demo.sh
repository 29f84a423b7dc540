#!/usr/bin/env bash
# The whole product in one go: makes sure that the base image is there, starts
# a daemon unless one answers, and runs Python in a gVisor sandbox through the
# public API. `demo.sh stop` ends what it started.
set -euo pipefail
cd "$(dirname "$0")/.."

url=${CUBBY_URL:-http://127.0.0.1:9090}
data=${CUBBY_DATA_DIR:-$PWD/.cache/demo}
images=${CUBBY_IMAGE_DIR:-$PWD/.cache/images}
pidfile=$data/demo.pid
cubby=bin/cubby

say() { printf '\n\033[1m==>\033[0m %s\n' "$*"; }
answers() { curl -fsS -o /dev/null --max-time 2 "$url/healthz" 2>/dev/null; }

if [ "${1:-}" = stop ]; then
  # Only the daemon that the demo started, and only its sandboxes: the one that
  # answers may be somebody else's.
  if ! [ -f "$pidfile" ] || ! kill -0 "$(cat "$pidfile")" 2>/dev/null; then
    rm -f "$pidfile"
    echo "no daemon of the demo is running"
    exit 0
  fi
  CUBBY_URL=$url $cubby ls --json | sed -nE 's/^ *"id": *"([^"]+)".*/\1/p' | while read -r id; do
    CUBBY_URL=$url $cubby rm "$id" >/dev/null
  done
  kill "$(cat "$pidfile")"
  while kill -0 "$(cat "$pidfile")" 2>/dev/null; do sleep 0.1; done
  rm -f "$pidfile"
  echo "stopped; its files are still in $data"
  exit 0
fi

if [ "$(id -u)" != 0 ]; then
  echo "cubby makes mounts, cgroups and namespaces: run 'sudo make demo'" >&2
  exit 1
fi

if ! scripts/image-ready.sh "$images"; then
  say "building the base image from Debian packages (once, a few minutes)"
  $cubby image build base --image-dir "$images"
fi

if answers; then
  say "a daemon answers at $url already"
else
  say "starting the daemon"
  mkdir -p "$data"
  setsid $cubby serve --listen "${url#*://}" --data-dir "$data" --image-dir "$images" >"$data/cubby.log" 2>&1 </dev/null &
  echo $! >"$pidfile"
  for _ in $(seq 100); do
    answers && break
    kill -0 "$(cat "$pidfile")" 2>/dev/null || break
    sleep 0.1
  done
  answers || { echo "the daemon did not come up; its log:" >&2; tail -n 20 "$data/cubby.log" >&2; exit 1; }
fi

say "POST /v1/sandboxes, then run Python in it"
id=$(curl -fsS -X POST "$url/v1/sandboxes" -d '{"isolation":"gvisor"}' | sed -nE 's/.*"id": *"([^"]+)".*/\1/p')
answer=$(curl -fsS -X POST "$url/v1/sandboxes/$id/exec" -H 'Content-Type: application/json' -d '{
  "cmd": ["python3", "-c", "import platform, pandas as pd; print(\"hello from\", platform.system(), platform.release()); print(pd.DataFrame({\"x\": [1, 2, 3]}).describe())"]
}')
curl -fsS "$url/v1/sandboxes/$id/execs/1/output"
grep -qE '"exit_code": *0' <<<"$answer" || { echo "the command did not succeed: $answer" >&2; exit 1; }

say "it works. The API is at $url, its documentation at $url/docs"
cat <<EOF

Try next:
  export CUBBY_URL=$url PATH=\$PWD/bin:\$PATH
  cubby shell $id                              # a terminal in the sandbox
  cubby exec $id -- pip install requests       # packages, through the egress allow-list
  cubby cp README.md $id:/workspace/ && cubby exec $id -- ls -l
  cubby run -- python3 -c 'print(1+1)'         # create, run, destroy
  cubby run --isolation container -- uname -a  # the faster, thinner wall
  make demo-stop
EOF
