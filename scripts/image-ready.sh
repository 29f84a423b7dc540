#!/usr/bin/env bash
# Succeeds when the image directory has an undamaged image of the name, made by
# the recipe as it is now. Usage: scripts/image-ready.sh IMAGE_DIR [NAME]
"$(dirname "$0")/../bin/cubby" image ls --json --image-dir "$1" 2>/dev/null |
  tr -d ' \n' | grep -oE "\"name\":\"${2:-base}\"[^}]*\"damaged\":false[^}]*" | grep -qv '"outdated":true'
