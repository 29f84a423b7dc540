#!/usr/bin/env bash
# Prints the modfile that cmd/runsc is built with: that of this module, with the
# gVisor of go.mod in a copy to which the patches in cmd/runsc/patches are
# applied. Makes the copy where it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
module=gvisor.dev/gvisor
scripts/go mod download "$module"
read -r version source < <(scripts/go list -m -f '{{.Version}} {{.Dir}}' "$module")
patches=("$PWD"/cmd/runsc/patches/*.patch)
copy=.cache/gvisor/$version-$(cat "${patches[@]}" | sha256sum | cut -c1-12)
if [ ! -d "$copy" ]; then
  mkdir -p .cache/gvisor
  new=$(mktemp -d .cache/gvisor/new.XXXXXX)
  trap 'rm -rf "$new"' EXIT
  cp -r "$source/." "$new"
  chmod -R u+w "$new"
  # The copy is none of this repository's: git would leave it alone.
  GIT_CEILING_DIRECTORIES=$PWD/.cache/gvisor git -C "$new" apply "${patches[@]}"
  # Another build may have made it meanwhile.
  mv -T "$new" "$copy" 2>/dev/null || [ -d "$copy" ]
  find .cache/gvisor -mindepth 1 -maxdepth 1 ! -name 'new.*' ! -name "${copy##*/}*" -exec rm -rf {} +
fi
# In the place of the old one only where it differs, and as a whole.
put() {
  local made
  made=$(mktemp "$1.XXXXXX")
  cat >"$made"
  if cmp -s "$made" "$1"; then rm "$made"; else mv "$made" "$1"; fi
}
{
  cat go.mod
  echo "replace $module => ./$copy"
} | put "$copy.mod"
put "$copy.sum" <go.sum
echo "$copy.mod"
