#!/usr/bin/env bash
# Installs what building and running cubby needs on Debian or Ubuntu, and only
# what is missing. Safe to run again. Usage: scripts/setup.sh [run|test|vm]
#
#   run   what `make build` and `make demo` need (default)
#   test  also what the test suite needs
#   vm    also what scripts/vm.sh needs
set -euo pipefail
cd "$(dirname "$0")/.."
want=${1:-run}

# The Go toolchain comes from the Go module mirror, where every release is
# published as a zip that the checksum below pins.
go_version=1.26.8
declare -A go_sha256=(
  [amd64]=30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7
  [arm64]=02b36b6787b3ac767668f630e2998df45a3b1f9ffee08d1bf3ef6487cd658d99
)

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }

# package:file that proves it is there. A file is quicker to check than dpkg,
# and also right when somebody installed the program by other means.
packages=(
  curl:curl git:git unzip:unzip mmdebstrap:mmdebstrap mkfs.ext4:e2fsprogs crun:crun xz:xz-utils
)
[ "$want" = test ] && packages+=(runc:runc gcc:gcc busybox:busybox-static mkfs.xfs:xfsprogs ip:iproute2 jq:jq docker-registry:docker-registry chromium:chromium node:nodejs npm:npm pip3:python3-pip javac:default-jdk-headless)

[ "$want" = vm ] && packages+=(qemu-system-x86_64:qemu-system-x86 qemu-system-aarch64:qemu-system-arm cpio:cpio depmod:kmod)

missing=()
for entry in "${packages[@]}"; do
  command -v "${entry%%:*}" >/dev/null || missing+=("${entry##*:}")
done
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=(debian-archive-keyring)
[ "$want" = test ] && [ ! -e /usr/include/stdlib.h ] && missing+=(libc6-dev)
# Its programs are not on the PATH.
[ "$want" = test ] && ! compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null && missing+=(postgresql)
# Kernels, for tests of what talks to them; of Debian's Python and R.
[ "$want" = test ] && [ ! -e /usr/share/jupyter/kernels/python3 ] && missing+=(python3-ipykernel)
[ "$want" = test ] && [ ! -e /usr/share/jupyter/kernels/ir ] && missing+=(r-cran-irkernel)
[ "$want" = test ] && ! python3 -c 'import ensurepip' 2>/dev/null && missing+=(python3-venv)

if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "missing: ${missing[*]}; install them with this system's package manager and run this again" >&2
    exit 1
  fi
  if [ "$(id -u)" != 0 ]; then
    echo "missing: ${missing[*]}; run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # Tests start a database server of their own: the package makes none.
  if [[ " ${missing[*]} " == *" postgresql "* ]] && [ ! -e /etc/postgresql-common ]; then
    no_cluster=/etc/postgresql-common/createcluster.d/cubby.conf
    mkdir -p "${no_cluster%/*}"
    trap 'rm -f "$no_cluster"' EXIT
    echo 'create_main_cluster = false' >"$no_cluster"
  fi
  # RUNLEVEL keeps packages from starting services that they bring.
  RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# scripts/go runs the project's Go. A Go of the system serves when it is new
# enough: the go line of go.mod decides.
need=$(sed -n 's/^go //p' go.mod)
have=$(go env GOVERSION 2>/dev/null | sed 's/^go//' || true)
if [ -z "$have" ] || [ "$(printf '%s\n%s\n' "$need" "$have" | sort -V | head -n 1)" != "$need" ]; then
  arch=$(dpkg --print-architecture 2>/dev/null || echo amd64)
  dir=$PWD/.cache/go-$go_version
  if [ ! -x "$dir/bin/go" ]; then
    say "fetching Go $go_version"
    mkdir -p .cache
    zip=.cache/go-$go_version.zip
    curl -fsSL --retry 3 -o "$zip" \
      "https://proxy.golang.org/golang.org/toolchain/@v/v0.0.1-go$go_version.linux-$arch.zip"
    echo "${go_sha256[$arch]}  $zip" | sha256sum -c --quiet -
    rm -rf .cache/go-unpack
    unzip -q "$zip" -d .cache/go-unpack
    mv ".cache/go-unpack/golang.org/toolchain@v0.0.1-go$go_version.linux-$arch" "$dir"
    # Module zips carry no file modes.
    chmod +x "$dir"/bin/* "$dir"/pkg/tool/*/* 2>/dev/null || true
    rm -rf .cache/go-unpack "$zip"
  fi
fi
