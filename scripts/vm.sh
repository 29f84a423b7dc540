#!/usr/bin/env bash
# Boots Debian 13 in a virtual machine that has cgroup version 2 only, tries
# cubby in it and exits with what came of that. Usage: scripts/vm.sh
#
#   ARCH=amd64  (default) under systemd, with deploy/cubby.service: the driver's
#               tests, then the daemon through restarts, kills and a reboot
#   ARCH=arm64  no systemd: cubby doctor, and a life of a sandbox of each kind
#   STEPS=…     of amd64: which of the steps of scripts/vm-inside.sh
#   LIMIT=5400  seconds until the machine is stopped
#   PATIENCE=900  seconds until an emulated machine must have begun
#
# KVM is used where it works (KVM=0 never tries it), else the machine is
# emulated, which takes ten times as long and longer. The machine has no network. What it
# writes is thrown away; .cache/vm keeps what it boots from and its console.
set -euo pipefail
cd "$(dirname "$0")/.."
arch=${ARCH:-amd64}
limit=${LIMIT:-5400}
patience=${PATIENCE:-900}
case $arch in
  amd64) qemu=qemu-system-x86_64 kernel=linux-image-cloud-amd64 console=ttyS0 ;;
  arm64) qemu=qemu-system-aarch64 kernel=linux-image-cloud-arm64 console=ttyAMA0 ;;
  *) echo "ARCH is amd64 or arm64" >&2; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || { echo "scripts/vm.sh makes file systems with files of root and needs root" >&2; exit 1; }
scripts/setup.sh vm

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }
cache=$PWD/.cache/vm/$arch
mkdir -p "$cache"
work=$(mktemp -d "$PWD/.cache/vm/run.XXXXXX")
machine=
# Not only what ends well leaves nothing behind.
tidy() {
  if [ -n "$machine" ]; then
    kill "$machine" 2>/dev/null || true
    wait "$machine" 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap tidy EXIT
trap 'exit 130' INT TERM

# root makes the disk that the machine boots from: Debian with what a host of
# cubby has, and a first program that runs what is on the second disk.
packages=$kernel,base-files,bash,coreutils,findutils,grep,sed,tar,util-linux,mount,libc-bin,systemd,systemd-sysv,dbus,udev,crun,runc,e2fsprogs,kmod,busybox-static,procps,ca-certificates
root() {
  local variant=minbase
  # Nothing of the other architecture can run here: its packages are unpacked
  # and not configured, and busybox finds the disk for them.
  [ "$arch" = "$(dpkg --print-architecture)" ] || variant=extract
  say "making the machine's disk from Debian packages ($arch, once, a few minutes)"
  mmdebstrap --quiet --architectures="$arch" --variant=$variant --include="$packages" trixie "$work/root" http://deb.debian.org/debian
  echo '/dev/vda / ext4 defaults 0 1' >"$work/root/etc/fstab"
  echo vm >"$work/root/etc/hostname"
  local units=$work/root/etc/systemd/system
  mkdir -p "$units/multi-user.target.wants"
  ln -s ../try.service "$units/multi-user.target.wants/try.service"
  cat >"$units/try.service" <<'UNIT'
[Unit]
After=multi-user.target dev-vdb.device
Requires=dev-vdb.device
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/bash -c 'mkdir -p /try && mount -o ro /dev/vdb /try && exec bash /try/inside.sh'
UNIT
  cp "$work"/root/boot/vmlinuz-* "$cache/kernel"
  if [ $variant = minbase ]; then
    cp "$work"/root/boot/initrd.img-* "$cache/initrd"
  else
    first "$work/root" | gzip -1 >"$cache/initrd"
  fi
  rm -rf "$work"/root/boot/* "$work/root/var/cache/apt" "$work/root/var/lib/apt/lists"
  truncate -s 6G "$work/root.img"
  mke2fs -q -t ext4 -d "$work/root" -E root_owner=0:0 "$work/root.img"
  mv "$work/root.img" "$cache/root.img"
  rm -rf "$work/root"
}

# first prints an initrd that loads the drivers of the disk and goes on with
# the program on the second disk.
first() {
  local from=$1 to=$work/initrd version module
  version=$(basename "$from"/usr/lib/modules/*)
  depmod -b "$from/usr" "$version" 2>/dev/null || depmod -b "$from" "$version"
  mkdir -p "$to/bin" "$to/modules" "$to/root" "$to/proc" "$to/sys" "$to/dev"
  cp "$from/usr/bin/busybox" "$to/bin/busybox"
  : >"$to/modules/order"
  for module in virtio_pci virtio_mmio virtio_blk virtio_console ext4; do
    modprobe -d "$from/usr" -S "$version" --show-depends "$module" 2>/dev/null ||
      modprobe -d "$from" -S "$version" --show-depends "$module"
  done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r module; do
    cp "$module" "$to/modules/"
    basename "$module" >>"$to/modules/order"
  done
  for module in "$to"/modules/*.xz; do
    [ -e "$module" ] && xz -d "$module"
  done
  sed -i 's/\.xz$//' "$to/modules/order"
  cat >"$to/init" <<'INIT'
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev; mount -t proc proc /proc; mount -t sysfs sys /sys
while read -r module; do insmod "/modules/$module"; done </modules/order
until [ -b /dev/vda ] && [ -b /dev/vdb ]; do sleep 1; done
mount -t ext4 /dev/vda /root
mkdir -p /root/try; mount -t ext4 -o ro /dev/vdb /root/try
for dir in dev proc sys; do mount -o move /$dir /root/$dir; done
exec switch_root /root /bin/bash /try/inside.sh
INIT
  chmod +x "$to/init"
  (cd "$to" && find . | cpio -o -H newc --quiet)
}

recipe=$(declare -f root first | cat - <(echo "$packages $arch") | sha256sum | cut -d ' ' -f 1)
if [ "$(cat "$cache/recipe" 2>/dev/null)" != "$recipe" ] || [ ! -e "$cache/root.img" ]; then
  root
  echo "$recipe" >"$cache/recipe"
fi

# The second disk has what is tried, new each time. Programs for another
# architecture are built beside those of this tree.
say "building what is tried"
try=$work/try
mkdir -p "$try"
export GOARCH=$arch CGO_ENABLED=0
carried=$work/carried
mkdir "$carried" "$work/programs"
modfile=$(scripts/gvisor.sh)
scripts/go build -trimpath -ldflags '-s -w' -o "$work/programs/cubby-init" ./cmd/cubby-init
scripts/go build -modfile="$modfile" -trimpath -ldflags '-s -w' -o "$work/programs/runsc" ./cmd/runsc
env -u GOARCH scripts/go run ./internal/embedded/pack -out "$carried" "$work/programs/cubby-init" "$work/programs/runsc"
{
  echo '{"Replace": {'
  for file in cubby-init.zst cubby-init.sha256 runsc.zst; do
    echo "\"$PWD/internal/embedded/bin/$file\": \"$carried/$file\","
  done
  echo "\"$PWD/internal/embedded/bin/runsc.sha256\": \"$carried/runsc.sha256\"}}"
} >"$work/overlay.json"
scripts/go build -overlay "$work/overlay.json" -trimpath -ldflags '-s -w' -o "$try/cubby" ./cmd/cubby
scripts/go build -trimpath -ldflags '-s -w' -o "$try/attack" ./internal/driver/oci/testdata/attack
if [[ $arch = amd64 && " ${STEPS:-driver} " == *" driver "* ]]; then
  mkdir "$try/oci"
  scripts/go test -c -overlay "$work/overlay.json" -tags root -trimpath -ldflags '-s -w' -o "$try/oci/oci.test" ./internal/driver/oci
  cp -r internal/driver/oci/testdata "$try/oci/"
  cp "$try/attack" "$try/oci/testdata/attack/attack"
fi
cp scripts/vm-inside.sh "$try/inside.sh"
cp deploy/cubby.service "$try/"
printf 'STEPS=%q TESTS=%q\n' "${STEPS:-}" "${TESTS:-}" >"$try/settings"
mke2fs -q -t ext4 -d "$try" "$work/try.img" "$(($(du -sm "$try" | cut -f 1) + 64))M"
rm -rf "$try" "$work/programs" "$carried"

# A slow machine finds its second disk after systemd has given it up by default.
flags=(-m 4G -smp 2 -nodefaults -display none -nic none
  -serial "file:$cache/console.log"
  -kernel "$cache/kernel" -initrd "$cache/initrd"
  -append "root=/dev/vda rw console=$console panic=-1 systemd.unified_cgroup_hierarchy=1 systemd.show_status=0 systemd.default_device_timeout_sec=3600"
  -drive "file=$cache/root.img,if=virtio,format=raw,snapshot=on"
  -drive "file=$work/try.img,if=virtio,format=raw,readonly=on"
  -device virtio-serial -chardev "file,id=out,path=$work/out" -device virtserialport,chardev=out,name=out
  -chardev "file,id=result,path=$work/result" -device virtserialport,chardev=result,name=result)
# Older emulators get cmpxchg16b and the flags after it wrong.
emulated=(-accel tcg,thread=multi -cpu max,-cx16,-la57,-avx)
native=(-accel kvm -cpu host)
if [ "$arch" = arm64 ]; then
  emulated=(-M virt -accel tcg,thread=multi -cpu max,pauth-impdef=on)
  native=(-M virt -accel kvm -cpu host)
fi
accel=("${emulated[@]}")
[ "$arch" = "$(dpkg --print-architecture)" ] && [ -w /dev/kvm ] && [ "${KVM:-1}" != 0 ] && accel=("${native[@]}")

# boot returns when the machine is off, with the result of what ran in it; 125
# when it did not come to that.
boot() {
  : >"$work/out"; : >"$work/result"; : >"$cache/console.log"
  TMPDIR=$work timeout "$limit" "$qemu" "${accel[@]}" "${flags[@]}" </dev/null &
  machine=$!
  tail -n +1 -f --pid=$machine "$work/out" &
  local show=$! began=$SECONDS
  while kill -0 "$machine" 2>/dev/null; do
    sleep 1
    # What hangs while it boots is not going to end.
    if [ ! -s "$work/out" ] && [ $((SECONDS - began)) -gt "$1" ] || grep -q 'Kernel panic' "$cache/console.log"; then
      kill "$machine" 2>/dev/null || true
      break
    fi
  done
  wait "$machine" || true
  machine=
  wait "$show" 2>/dev/null || true
  [ -s "$work/result" ] || return 125
  return "$(tail -n 1 "$work/result")"
}

say "booting (${accel[1]} ${accel[3]:-}); the console is in .cache/vm/$arch/console.log"
result=0
if [ "${accel[*]}" = "${native[*]}" ]; then
  boot 60 || result=$?
  if [ $result = 125 ] && [ ! -s "$work/out" ]; then
    say "not with KVM; once more, emulated"
    accel=("${emulated[@]}") result=0
    boot "$patience" || result=$?
  fi
else
  boot "$patience" || result=$?
fi
if [ $result = 125 ]; then
  echo "the machine ended without a result; the end of its console:" >&2
  tail -n 40 "$cache/console.log" >&2
fi
exit $result
