#!/usr/bin/env bash
# Succeeds when the image directory has an undamaged base image.
# Usage: scripts/image-ready.sh IMAGE_DIR
"$(dirname "$0")/../bin/cubby" image ls --json --image-dir "$1" 2>/dev/null |
  tr -d ' \n' | grep -qE '"name":"base"[^}]*"damaged":false'
