#!/bin/bash
# What scripts/vm.sh runs as root in its machine, which nothing else uses, and
# again after each reboot. It prints to one port of the machine and writes its
# result to another: 0, or 1 when a check failed.
set -u

if [ ! -d /run/systemd/system ]; then
  # No package was configured here: what alternatives would name is missing.
  /usr/bin/busybox mkdir -p /opt/busybox && /usr/bin/busybox --install -s /opt/busybox
  PATH=$PATH:/opt/busybox
fi

# port is the device of a port by its name; without udev it has no other.
port() { echo "/dev/$(basename "$(dirname "$(grep -lx "$1" /sys/class/virtio-ports/*/name)")")"; }
exec >"$(port out)" 2>&1 </dev/null

export TMPDIR=/var/tmp HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/busybox
export CUBBY_URL=http://127.0.0.1:9090
export CUBBY_POOL=off CUBBY_SENTRY_POOL=0 CUBBY_CONTAINER_POOL=0 # each cgroup is one of a sandbox that a step made
kept=/var/lib/vm # what is known after a reboot
. /try/settings

say() { printf '==> [%d] %s\n' "$SECONDS" "$*"; }
good() { printf '    ok    %s\n' "$*"; }
bad() {
  printf '    FAIL  %s\n' "$*"
  touch "$kept/failed"
}
# check WHAT CMD…: the command succeeds.
check() {
  local what=$1 out
  shift
  if out=$("$@" 2>&1); then good "$what"; else bad "$what: $* -> $? ${out:0:600}"; fi
}
# is WHAT GOT WANT: WANT is a pattern of the shell.
is() {
  # shellcheck disable=SC2053
  if [[ $2 == $3 ]]; then good "$1"; else bad "$1: ${2:0:600}, want $3"; fi
}
# until_ SECONDS CMD…: repeats the command until it succeeds.
until_() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.5
  done
}
field() { tr -d '\n' | sed -nE 's/.*"'"$1"'": *"?([^",}]*)"?.*/\1/p'; }
status() { cubby get "$1" --json | field status; }

# Everything that is cubby's, in the one hierarchy.
ours() { ls -d /sys/fs/cgroup/cubby-*/*/ 2>/dev/null; }
# make ID FLAGS… creates a sandbox and keeps in group[ID] where its cgroup is.
declare -A group
make_() {
  local before
  before=$(ours)
  check "create $1" cubby create --id "$@"
  group[$1]=$(comm -13 <(echo "$before") <(ours))
  group[$1]=${group[$1]%/}
  echo "${group[$1]}" >"$kept/group-$1"
}
members() { [ ! -d "$1" ] || find "$1" -name cgroup.procs -exec cat {} + 2>/dev/null; }

finish() {
  local result=0
  [ -e "$kept/failed" ] && result=1
  say "result $result"
  echo $result >"$(port result)"
  sync
  sleep 1
  if [ -d /run/systemd/system ]; then systemctl poweroff; else echo o >/proc/sysrq-trigger; fi
  exit
}

# The image: busybox and nothing else.
rootfs() {
  local root=$1
  mkdir -p "$root"/{bin,etc,tmp,root,usr/bin}
  cp /usr/bin/busybox "$root/bin/"
  chroot "$root" /bin/busybox --install -s /bin
  printf 'root:x:0:0:root:/root:/bin/sh\nsandbox:x:1000:1000::/home/sandbox:/bin/sh\n' >"$root/etc/passwd"
  printf 'root:x:0:\nsandbox:x:1000:\n' >"$root/etc/group"
}

step_host() {
  say "the host"
  is "cgroup version 2 only" "$(stat -f -c %T /sys/fs/cgroup)" cgroup2fs
  is "no hierarchy of version 1" "$(grep -c ' cgroup ' /proc/self/mounts)" 0
  uname -srm
  crun --version | head -n 1
  [ -d /run/systemd/system ] && systemctl --version | head -n 1
  install -D -m 0755 /try/cubby /usr/local/bin/cubby
  rootfs /var/tmp/rootfs
  tar -C /var/tmp/rootfs -cf /var/tmp/rootfs.tar .
  check "image import" cubby image import /var/tmp/rootfs.tar --name base
}

step_doctor() {
  say "cubby doctor"
  cubby doctor
  is "cubby doctor" $? 0
}

# The tests of the driver: its contract, limits, kills. Walls and contents of
# disks do not depend on the cgroups.
step_driver() {
  say "the driver's tests"
  cp -r /try/oci /var/tmp/
  (cd /var/tmp/oci && ./oci.test -test.v -test.timeout 60m -test.run "${TESTS:-TestContract|TestKilledAtAnyMoment|TestStopThatWasCutOff|TestMemoryBomb|TestOutOfMemoryIsNamed|TestSocketBuffers|TestFileLocksAreBound|TestContainersHaveSignalsOfTheirOwn|TestKillAfterOutOfMemoryIsAKill|TestTasksOfGVisor|TestForkBomb|TestLimitsAreShown|TestPrivileges|TestEscapes|TestASandboxOfASentryIsLikeOthers|TestSentriesThatEnd}") |
    grep -E --line-buffered '^ *(---|===.*(FAIL|PANIC)|panic|FAIL|PASS|ok)|^ +[a-z_]+\.go:[0-9]+:'
  is "the driver's tests" "${PIPESTATUS[0]}" 0
  is "no cgroup is left" "$(ls -d /sys/fs/cgroup/cubby-*/*/ 2>/dev/null)" ""
}

answers() { cubby ls; }

# A daemon without systemd's help.
step_daemon() {
  say "the daemon"
  cubby serve >/var/log/cubby.log 2>&1 &
  local daemon=$!
  check "the daemon answers" until_ 120 answers
  life gvisor
  life container
  kill $daemon
  wait $daemon
  is "the daemon's end" $? 0
}

# What this version counts of a container, and what nobody counts, each held to
# the limits of the sandbox and of the host.
step_walls() {
  say "the walls of a container's memory"
  cubby serve >/var/log/cubby.log 2>&1 &
  local daemon=$! id=walls kind g out
  check "the daemon answers" until_ 120 answers
  make_ $id --isolation container --memory 192MiB --cpus 1 --pids 64 --disk 256MiB
  g=${group[$id]}
  check "the attacker is in place" cubby cp /try/attack $id:/workspace/attack
  check "and can run" cubby exec --user root $id -- chmod 755 /workspace/attack
  for kind in tcp udp unix; do
    cubby exec -d --timeout 0 $id -- sh -c "sleep 1000 | /workspace/attack $kind $((48 << 20)) hold >/workspace/$kind" >/dev/null
    check "$kind: 48 MiB of buffers" until_ 120 cubby exec $id -- grep -q "^$kind " /workspace/$kind
    out=$(cubby exec $id -- sed -n "s/^$kind //p" /workspace/$kind)
    echo "    $kind: $out bytes in buffers; memory.current $(cat "$g/memory.current"), $(grep -E '^(sock|kernel) ' "$g/memory.stat" | tr '\n' ' '), host: $(grep -E '^TCP|^UDP:' /proc/net/sockstat | tr '\n' ' ')"
    is "$kind: they are charged" "$(($(cat "$g/memory.current") > ${out:-0} * 3 / 4))" 1
    cubby exec $id -- killall sleep >/dev/null
    check "$kind: they go with their process" until_ 60 test "$(cat "$g/memory.current")" -lt $((150 << 20))
    cubby exec --json --timeout 60s $id -- /workspace/attack $kind $((400 << 20)) >/tmp/out 2>&1
    echo "    $kind, 400 MiB: $(field reason </tmp/out) $(tr -d '\n' </tmp/out | cut -c 1-300)"
    echo "    memory.peak $(cat "$g/memory.peak"), memory.max $(cat "$g/memory.max")"
    is "$kind: the peak is within the limit, give or take 16 MiB" "$(($(cat "$g/memory.peak") <= $(cat "$g/memory.max") + (16 << 20)))" 1
    check "$kind: the sandbox goes on" until_ 60 cubby exec $id -- true
  done
  out=$(cubby exec --json --timeout 120s -e TMPDIR=/workspace $id -- sh -c 'mkfifo never; exec ./attack locks 3000000 hold <>never')
  is "too many file locks" "$(field reason <<<"$out"), $(field message <<<"$out")" "oom, too many file locks*"
  echo "    $(field message <<<"$out"); slabs of file locks now: $(cat /sys/kernel/slab/file_lock_cache/slabs)"
  check "and the sandbox goes on" until_ 60 cubby exec $id -- true
  check "rm" cubby rm $id
  kill $daemon
  wait $daemon
  is "the daemon's end" $? 0
}

# life is that of one sandbox, with what its cgroup has to do for it.
life() {
  local wall=$1 id=life-$1 g out
  say "a sandbox of isolation $wall"
  make_ "$id" --isolation "$wall" --memory 192MiB --cpus 1 --pids 64 --disk 256MiB
  g=${group[$id]}
  is "its cgroup" "$g" '/sys/fs/cgroup/cubby-*/*'
  is "cpu.max" "$(cat "$g/cpu.max")" "100000 100000"
  is "memory.max" "$(cat "$g/memory.max")" '[0-9]*'
  is "memory.swap.max" "$(cat "$g/memory.swap.max" 2>/dev/null || echo 0)" 0
  is "pids.max" "$(cat "$g/pids.max")" '[0-9]*'
  echo "    memory.max $(cat "$g/memory.max"), pids.max $(cat "$g/pids.max"), $(members "$g" | wc -l) processes"
  is "it has processes" "$(members "$g" | wc -l)" '[1-9]*'
  is "exec" "$(cubby exec "$id" -- sh -c 'echo hello from $(uname -m); exit 3' 2>&1; echo $?)" "hello from $(uname -m)"$'\n3'
  cubby exec --timeout 4s "$id" -- sh -c 'while :; do :; done' >/dev/null 2>&1
  is "the cpu quota throttles" "$(sed -n 's/^nr_throttled //p' "$g/cpu.stat")" '[1-9]*'
  # gVisor cannot end a system call that it has begun, so what it is to survive takes its memory in many.
  local taker=(dd if=/dev/zero of=/dev/null bs=512M count=1)
  [ "$wall" != gvisor ] || taker=(tail /dev/zero)
  out=$(cubby exec --json "$id" -- "${taker[@]}")
  is "out of memory is named" "$(field reason <<<"$out") $(field exit_code <<<"$out")" "oom 137"
  is "and the sandbox goes on" "$(cubby exec "$id" -- echo alive 2>&1)" alive
  out=$(cubby exec --json --timeout 4s "$id" -- sh -c 'bomb() { bomb | bomb & }; bomb; while :; do :; done')
  is "a fork bomb meets its time limit" "$(field reason <<<"$out")" timeout
  check "and the sandbox goes on" until_ 60 cubby exec "$id" -- true
  cubby exec -d "$id" -- sh -c 'setsid sleep 1000 & setsid sleep 1000 & sleep 1000' >/dev/null
  check "stop" cubby stop "$id"
  is "no process is left" "$(members "$g")" ""
  check "start" cubby start "$id"
  is "exec" "$(cubby exec "$id" -- echo alive 2>&1)" alive
  cubby exec -d "$id" -- sh -c 'setsid sleep 1000 & setsid sleep 1000 & sleep 1000' >/dev/null
  local pids
  pids=$(members "$g")
  check "rm" cubby rm "$id"
  is "no cgroup is left" "$(ls -d "$g" 2>/dev/null)" ""
  is "no process is left" "$(for p in $pids; do [ -e "/proc/$p" ] && echo "$p"; done)" ""
}

beat='i=0; while :; do i=$((i+1)); echo $i; sleep 1; done'
# beats ID [SEQ]: how many the command has printed, when none is missing.
beats() { cubby logs "$@" 2>/dev/null | awk '$1 != NR { exit 1 } END { print NR }'; }
beats_beyond() { local n; n=$(beats "$2" "$3") && [ "$n" -gt "$1" ]; }
beyond() { beats_beyond "$1" "$2" 1; }

# goes_on WHAT: both sandboxes and their commands did.
goes_on() {
  local id n
  for id in gvisor container; do
    check "$1: $id answers" until_ 120 cubby exec "$id" -- true
    n=$(beats $id 1)
    is "$1: no beat of $id is missing" "$n" '[1-9]*'
    check "$1: $id beats on" until_ 60 beyond "$n" $id
    is "$1: $id has its limit" "$(cat "${group[$id]}/cpu.max")" "100000 100000"
  done
}

# The service, installed as make install does it.
step_service() {
  say "systemd"
  install -m 0644 /try/cubby.service /etc/systemd/system/cubby.service
  mkdir -p /etc/cubby && printf "%s\n" CUBBY_POOL=$CUBBY_POOL CUBBY_SENTRY_POOL=$CUBBY_SENTRY_POOL CUBBY_CONTAINER_POOL=$CUBBY_CONTAINER_POOL >/etc/cubby/cubby.env
  check "enable --now" sh -c 'systemctl daemon-reload && systemctl enable --now cubby'
  check "the service answers" until_ 120 answers
  local id service=/sys/fs/cgroup/system.slice/cubby.service
  for id in gvisor container; do
    make_ $id --isolation $id --memory 192MiB --cpus 1 --pids 64 --disk 256MiB --idle-timeout 0
    cubby exec -d --timeout 0 $id -- sh -c "$beat" >/dev/null
    check "$id beats" until_ 60 beyond 0 $id
  done
  is "the service's cgroup has the daemon alone" "$(members $service)" "$(systemctl show -p MainPID --value cubby)"
  is "sandboxes are beside it" "$(for id in gvisor container; do cat /proc/"$(members "${group[$id]}" | head -n 1)"/cgroup; done | grep -c "^0::/cubby-")" 2

  check "restart" systemctl restart cubby
  goes_on restart
  check "kill" systemctl kill -s KILL cubby
  goes_on kill
  check "stop" systemctl stop cubby
  is "stopped: gvisor lives" "$(members "${group[gvisor]}" | wc -l)" '[1-9]*'
  is "stopped: container lives" "$(members "${group[container]}" | wc -l)" '[1-9]*'
  # Whatever systemd writes to the hierarchy while no unit wants controllers.
  check "daemon-reload, daemon-reexec, a unit with limits" sh -c \
    'systemctl daemon-reload && systemctl daemon-reexec && systemd-run -q --wait -p CPUQuota=50% -p MemoryMax=64M -p TasksMax=9 true'
  check "start" systemctl start cubby
  goes_on "stop and start"
  is "nothing failed" "$(systemctl list-units --failed --plain --no-legend cubby.service)" ""
  journalctl -u cubby -p warning --no-pager -o cat | tail -n 20
}

limit=120 # seconds that a command may run, which the machine's absence exceeds
# holds beats too. It has a file open that is deleted, and answers once with its content.
holds='cd /workspace; echo unlinked >open; exec 3<open; rm open; i=0
while :; do i=$((i+1)); echo $i; [ ! -e ask ] || { rm ask; cat <&3 >answer; }; sleep 1; done'
memory_of() { echo "/var/lib/cubby/run/oci/$(basename "$(cat "$kept/group-$1")")/memory"; }

# Sandboxes that sleep when the machine reboots. The memory of one is damaged
# before the daemon of the next boot starts.
step_sleep() {
  say "sleep"
  local id
  for id in sleeper damaged; do
    make_ $id --isolation gvisor --memory 192MiB --cpus 1 --pids 64 --disk 256MiB --idle-timeout 0
    cubby exec -d --timeout 0 $id -- sh -c "$holds" >/dev/null
    check "$id beats" until_ 60 beyond 0 $id
    check "files in $id" cubby exec --user root $id -- sh -c 'echo precious | tee /workspace/kept >/etc/kept'
    cubby exec -d --timeout ${limit}s $id -- sh -c "$beat" >/dev/null
    check "$id sleeps" cubby sleep --force $id
    is "the status of $id" "$(status $id)" sleeping
    is "no cgroup of $id" "$(ls -d "${group[$id]}" 2>/dev/null)" ""
    check "the memory of $id" test -d "$(memory_of $id)/image"
    beats $id 1 >$kept/beats-$id
    is "no beat of $id is missing" "$(cat $kept/beats-$id)" '[1-9]*'
  done
  check "restart" systemctl restart cubby
  check "the service answers" until_ 120 answers
  is "the status of sleeper, after a restart" "$(status sleeper)" sleeping
  cat >$kept/damage.sh <<DAMAGE
file=\$(ls -S $(memory_of damaged)/image/* | head -n 1)
printf damaged | dd of="\$file" bs=1 seek=\$((\$(stat -c %s "\$file") / 2)) conv=notrunc && touch $kept/was-damaged
DAMAGE
  printf '%s\n' '[Unit]' 'Before=cubby.service' '[Service]' Type=oneshot "ExecStart=/bin/bash $kept/damage.sh" \
    '[Install]' WantedBy=multi-user.target >/etc/systemd/system/damage.service
  check "the damage is planned" systemctl enable damage
  date +%s >$kept/slept
}

# woken looks whether both go on as they must.
woken() {
  local id before after out n
  for id in sleeper damaged; do
    is "$id sleeps still" "$(status $id)" sleeping
    is "no cgroup of $id" "$(ls -d "$(cat $kept/group-$id)" 2>/dev/null)" ""
  done
  check "a memory was damaged meanwhile" test -e $kept/was-damaged
  # A time limit that counted the sleep would be over.
  n=$(($(cat $kept/slept) + limit + 5 - $(date +%s)))
  echo "    the sleep lasts until the time limit would be over: ${n} s more"
  [ $n -le 0 ] || sleep $n

  is "a use wakes sleeper" "$(cubby exec sleeper -- cat /workspace/kept /etc/kept 2>&1)" $'precious\nprecious'
  is "the status of sleeper" "$(status sleeper)" running
  is "its memory was whole" "$(cubby get sleeper --json | grep -c restore_incomplete)" 0
  check "its counter goes on" until_ 60 beyond "$(cat $kept/beats-sleeper)" sleeper
  n=$(beats sleeper 3)
  is "no beat of the command with a time limit is missing" "$n" '[1-9]*'
  check "its time limit does not count the sleep" until_ 60 beats_beyond "$n" sleeper 3
  before=$(date +%s)
  out=$(cubby exec sleeper -- date +%s 2>&1)
  after=$(date +%s)
  is "its clock is right: $before <= $out <= $after" "$((out >= before - 1 && out <= after + 1))" 1
  cubby exec sleeper -- touch /workspace/ask
  check "it answers" until_ 60 cubby exec sleeper -- test -s /workspace/answer
  is "the file that was deleted while it was open" "$(cubby exec sleeper -- cat /workspace/answer 2>&1)" unlinked

  is "a use starts damaged from its files" "$(cubby exec damaged -- cat /workspace/kept /etc/kept 2>&1)" $'precious\nprecious'
  out=$(cubby get damaged --json)
  is "and that is said" "$(field restore_incomplete <<<"$out"), $(field reason <<<"$out")" "true, *memory*lost*"
  echo "    $(field reason <<<"$out")"
  is "its command is lost" "$(cubby logs --json damaged 1 | field reason)" lost
  is "no beat of before is missing" "$(beats damaged 1)" "$(cat $kept/beats-damaged)"
  is "what was open is gone" "$(cubby exec damaged -- ls /workspace 2>&1)" kept
  check "rm" cubby rm sleeper damaged
}

# What the daemon finds after a boot: no sandbox runs, and the rows say so.
step_reboot() {
  say "reboot"
  local id
  for id in gvisor container; do
    check "a file in $id" cubby exec $id -- sh -c 'echo precious > /workspace/kept; sync'
  done
  make_ halted --isolation container --memory 192MiB --disk 256MiB
  check "a file in halted" cubby exec halted -- sh -c 'echo precious > /workspace/kept'
  check "stop halted" cubby stop halted
  touch $kept/rebooted
  systemctl --no-block reboot
  exit
}

rebooted() {
  say "after the reboot"
  local id out
  check "the service came up by itself" until_ 180 answers
  for id in gvisor container halted; do
    check "$id is stopped" until_ 60 test_status $id stopped
    echo "    $(cubby get $id --json | tr -d '\n' | grep -oE '"(status|reason)": *"[^"]*"' | tr '\n' ' ')"
    is "no cgroup of $id" "$(ls -d "$(cat $kept/group-$id)" 2>/dev/null)" ""
    is "the file of $id, stopped" "$(cubby cp $id:/workspace/kept - 2>&1)" precious
  done
  for id in gvisor container; do
    out=$(cubby logs --json $id 1)
    is "the command of $id has ended" "$(field reason <<<"$out")" container_died
    is "no beat of $id is missing" "$(beats $id 1)" '[1-9]*'
  done
  for id in gvisor container halted; do
    check "start $id" cubby start $id
    is "the file of $id" "$(cubby exec $id -- cat /workspace/kept 2>&1)" precious
  done
  [ ! -e $kept/slept ] || woken
  check "rm" cubby rm gvisor container halted
  is "no cgroup is left" "$(ours)" ""
  # What all runs of gVisor share stays.
  is "nothing of a sandbox is left" "$(ls /var/lib/cubby/run/oci | grep -vx shared)" ""
  # Nothing wants the controllers now, and the daemon is started again.
  check "restart" systemctl restart cubby
  check "the service answers" until_ 120 answers
  make_ last --isolation container --memory 192MiB --disk 256MiB
  is "exec" "$(cubby exec last -- echo alive 2>&1)" alive
  check "rm" cubby rm last
  journalctl -b -u cubby -p warning --no-pager -o cat | tail -n 20
}
test_status() { [ "$(status "$1")" = "$2" ]; }

if [ ! -d /run/systemd/system ]; then
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  mount -t tmpfs tmpfs /run
  mkdir -p /dev/pts /dev/shm
  mount -t devpts devpts /dev/pts
  mount -t tmpfs tmpfs /dev/shm
  mount -t tmpfs tmpfs /tmp
  busybox ip link set lo up
  hash -r
  for module in loop overlay; do modprobe $module; done
fi
mkdir -p $kept
if [ -e $kept/rebooted ]; then
  rebooted
  finish
fi
steps="host doctor driver daemon walls service sleep reboot"
[ -d /run/systemd/system ] || steps="host doctor daemon walls"
for step in ${STEPS:-$steps}; do "step_$step"; done
finish
