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

# The copy is none of a repository's: of a directory of one git leaves out what a
# patch changes elsewhere, and says nothing.
apply() {
  env -u GIT_DIR -u GIT_WORK_TREE -u GIT_INDEX_FILE -u GIT_PREFIX GIT_CEILING_DIRECTORIES="$PWD/.cache/gvisor" \
    git -C "$1" apply "${@:2}"
}

if [ ! -d "$copy" ]; then
  mkdir -p .cache/gvisor
  # What is left of other patches, and of builds that were killed.
  find .cache/gvisor -mindepth 1 -maxdepth 1 -mmin +600 -exec rm -rf {} +
  new=$(mktemp -d .cache/gvisor/new.XXXXXX)
  trap 'rm -rf "$new"' EXIT
  cp -r "$source/." "$new"
  chmod -R u+w,go+rX "$new"
  for patch in "${patches[@]}"; do
    apply "$new" "$patch"
    # What was applied does not fit once more.
    if apply "$new" --check "$patch" 2>/dev/null; then
      echo "$patch changes nothing in $new" >&2
      exit 1
    fi
  done
  # Another build may have made it meanwhile.
  mv -T "$new" "$copy" 2>/dev/null || [ -d "$copy" ]
fi

# put writes a file as a whole, where it differs.
put() {
  local text made
  text=$(cat)
  [ ! -e "$1" ] || [ "$text" != "$(cat "$1")" ] || return 0
  made=$(mktemp "$1.XXXXXX")
  echo "$text" >"$made"
  chmod 644 "$made"
  mv "$made" "$1"
}
{
  cat go.mod
  echo "replace $module => ./$copy"
} | put "$copy.mod"
put "$copy.sum" <go.sum
echo "$copy.mod"
