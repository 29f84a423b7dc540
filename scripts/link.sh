#!/usr/bin/env bash
# For go's -toolexec: keeps each test program as it was linked last. Go itself keeps
# compiled packages and not programs, and to link a hundred of them again, though
# nothing has changed, takes about a minute of a processor.
#
# .cache/linked has one copy of each program and kind of build.
set -euo pipefail
tool=$1
shift
if [ "${tool##*/}" != link ] || [ "${1:-}" = -V=full ]; then exec "$tool" "$@"; fi
out='' id='' packages=''
for ((i = 1; i <= $#; i++)); do
  next=$((i + 1))
  case ${!i} in
  -o) out=${!next} ;;
  -importcfg) packages=${!next} ;;
  -buildid=*) id=${!i#-buildid=} ;; # begins with a sum of all that goes into the program
  esac
done
[[ $out == *.test && -n $id && -n $packages ]] || exec "$tool" "$@"

kept=${0%/*}/../.cache/linked
mkdir -p "$kept"
# What it imports, with the race detector or without, tells it from others with its name.
name=$(sed 's/=.*//' "$packages" | cat - <(grep -q 'runtime/race=' "$packages" && echo race) | sha256sum)
program=$kept/${out##*/}-${name:0:16}
if [ "$(cat "$program.id" 2>/dev/null)" = "$tool $id" ] && cp "$program" "$out" 2>/dev/null; then
  touch -c "$program" "$program.id"
  exit 0
fi
"$tool" "$@"
# A copy, since go writes into the program that it gets; under a new name first, since
# another go may read the old one.
rm -f "$program.id"
cp "$out" "$program.$$" && mv "$program.$$" "$program" && echo "$tool $id" >"$program.id.$$" && mv "$program.id.$$" "$program.id"
