#!/usr/bin/env bash
# Runs the Go tests, with real sandboxes.
#
#   compile        what is tested, into go's cache
#   run [FLAG…]    every test but the slow and the long ones; flags are those of go test
#   slow [FLAG…]   the tests of test/slow.txt
#   long [PART…]   what takes hours, or some of its parts, one after another, with
#                  the time of each:
#                    agents           the coding agents themselves, asking a model that
#                                     answers as fixtures say
#                    e2e, cli, image, security
#                                     all tests of these packages, with those of the
#                                     tag long; or those of RUN
#                    race             the scripts of test/e2e with the race detector:
#                                     against a daemon inside of the test, and against
#                                     the built one
#                    drivers          the runtime drivers with the race detector
#                    durability       SEEDS random seeds of test/durability, 20 cycles and
#                                     more of each configuration; and 200 sleepers
#                    fuzz             every fuzz target
#   budget         as run and slow, one package at a time: red when one takes half
#                  again as long as test/budgets.txt gives it
#   flaky          as run and slow, ten times: red when a test failed twice, did not
#                  run ten times, or when a package failed outside of its tests
#
# PACKAGES="./internal/egress ./test/e2e" makes run, slow, budget and flaky leave out
# all other packages, RUN=REGEXP all other tests (as go test -run).
#
# Packages whose subject is the built program or a runtime are tested without
# the race detector, which would see the test alone; all others with it, but for
# the tests in files *_volume_*test.go: they move so many bytes that the race
# detector makes seconds minutes, and what they do is done in small with it.
#
# A test that fails is run again by itself, at most twice, and no more than two
# tests: real sandboxes on a loaded machine miss a time limit now and then. What
# passed only then is listed at the end; a data race is never run again. The
# events of every test stay in .cache/tests.json (gotestsum tool slowest
# --jsonfile .cache/tests.json).
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache
most_again=2
# The race detector leaves out SQLite, which is translated from C and whose every
# access through a pointer it would look at: tests took two and a half times as
# much of the processor. What Go code does around it is seen as ever.
race=(-race '-gcflags=modernc.org/...=-race=false')
programs=(./test/... ./internal/driver/oci)
# Collecting garbage costs a program with the race detector much and memory is
# there: internal/store took a fifth less of the processor.
collect=400

list() { scripts/go list -tags root "$@" | tr '\n' ' '; }
# gVisor's program is tested without it: it takes minutes to compile for the race
# detector, and the test of its flags starts no goroutine.
raced() {
  local others
  others=$(list "${programs[@]}")
  for p in $(list github.com/cubbyhq/cubby/...); do
    [[ " $others " == *" $p "* || $p == */cmd/runsc ]] || echo "$p"
  done
}

# slow KIND prints the lines of a kind of test/slow.txt without it, a test each.
slow() { awk -v kind="$1" '$1 == kind && NF == 2 { print $2 } $1 == kind { for (i = 3; i <= NF; i++) print $2, $i }' test/slow.txt; }
slow_packages() { slow "$1" | cut -d' ' -f1 | sort -u | sed 's,^,github.com/cubbyhq/cubby/,'; }
slow_names() { slow "$1" | cut -d' ' -f2 | paste -sd'|'; }
# slow_known fails when there is no such package or test: it was renamed. One of the
# same name in another package, which would be left out too, has to be listed.
slow_known() {
  local package name other
  while read -r package name; do
    grep -q "^func ${name:-Test.*}(" "$package"/*_test.go || { echo "test/slow.txt: there is no $package $name" >&2; return 1; }
  done < <(slow package; slow program; slow raced)
  while IFS=: read -r other name; do
    other=$(dirname "$other") name=${name#func } name=${name%(}
    grep -qxF "$other $name" <(slow program; slow raced) || { echo "test/slow.txt: $other has a $name too" >&2; return 1; }
  done < <(same() { grep -Eo "^func ($(slow_names "$1"))\(" "${@:2}"; }
    same program test/e2e/*_test.go internal/driver/oci/*_test.go
    same raced $(find cmd client internal -name '*_test.go' | grep -v '^internal/driver/oci/[^/]*$'))
}

# long_known fails when a package has long tests that no part runs.
long_known() {
  local dir
  for dir in $(grep -rlx --include='*_test.go' '//go:build root && long' cmd client internal test | xargs dirname | sort -u); do
    grep -qE "long_tests [^ ]+ \./($dir|$(dirname "$dir")/\.\.\.) " scripts/test.sh || { echo "scripts/test.sh: no part of long has $dir" >&2; return 1; }
  done
}

# of_packages prints those of some packages that PACKAGES does not leave out, what
# takes longest first: at the end nothing long is left to wait for.
of_packages() {
  local chosen
  # shellcheck disable=SC2086 # one argument a package
  chosen=$(list ${PACKAGES:-github.com/cubbyhq/cubby/...})
  printf '%s\n' "$@" | awk -v chosen=" $chosen" 'NR == FNR { if ($1 !~ /^#/) budget[$1] = $2; next }
    index(chosen, " " $1 " ") { print budget[$1] + 0, $1 }' test/budgets.txt - | sort -k1,1nr -k2 | cut -d' ' -f2 | tr '\n' ' '
}

# tests NAME PACKAGES FLAG… runs packages and keeps their events. To link is a good
# part of what a small package takes: a third of that goes to debuggers, and what is
# linked already is not linked again.
tests() {
  local name=$1 packages=$2
  shift 2
  [ -n "${packages// }" ] || return 0
  .cache/tools/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --packages "$packages" "${again[@]}" \
    --rerun-fails-report ".cache/tests-$name.again" --jsonfile ".cache/tests-$name.json" -- -toolexec "$PWD/scripts/link.sh" -vet=off -ldflags=-w -timeout 30m "$@"
}

# volumes lists the files of such tests.
volumes() { find internal -name '*_volume*_test.go'; }
volume_packages() { list $(volumes | xargs dirname | sort -u | sed 's,^,./,'); }
volume_names() { volumes | xargs sed -n 's/^func \(Test[A-Za-z0-9]*\)(.*/\1/p' | paste -sd'|'; }

# in_memory runs a kind of tests below a file system in memory that only they
# see: what tests crashes and full disks is among the programs.
in_memory() {
  case $PWD/ in /media/*) "$@"; return ;; esac
  unshare --mount "$0" in_memory "${again[*]}" "$@"
}

# The kinds of tests. The scripts of test/e2e run once more against a daemon
# inside of the test, which needs no root.
program_tests() {
  local quick
  quick=$(list "${programs[@]}" | tr ' ' '\n' | grep -vxF "$(slow_packages package)")
  # shellcheck disable=SC2086 # one argument a package
  CGO_ENABLED=0 tests program "$(of_packages $quick)" -trimpath -tags root "${only[@]}" -skip "^($(slow_names program))\$" "$@"
}
runsc_tests() { CGO_ENABLED=0 tests runsc "$(of_packages $(list ./cmd/runsc))" -modfile="$modfile" -trimpath "${only[@]}" "$@"; }
raced_tests() { GOGC=$collect tests raced "$(of_packages $(raced))" "${race[@]}" -tags root "${only[@]}" -skip "^($(slow_names raced))\$" "$@"; }
# These are what they leave out.
slow_package_tests() { CGO_ENABLED=0 tests slow-package "$(of_packages $(slow_packages package))" -trimpath -tags root "${only[@]}" "$@"; }
slow_program_tests() { CGO_ENABLED=0 slow_tests program -trimpath "$@"; }
slow_raced_tests() { GOGC=$collect slow_tests raced "${race[@]}" "$@"; }
slow_tests() {
  local kind=$1 names
  shift
  names=$(slow_names "$kind" | chosen) || return 0
  # shellcheck disable=SC2046 # one argument a package
  tests "slow-$kind" "$(of_packages $(slow_packages "$kind"))" -tags root -run "^($names)\$" "$@"
}
# chosen leaves out the names that RUN leaves out, and fails when none is left.
chosen() {
  if [ -n "${RUN:-}" ]; then tr '|' '\n' | grep -E -- "${RUN%%/*}" | paste -sd'|'; else cat; fi
}
volume_tests() {
  local names
  names=$(volume_names | chosen) || return 0
  CGO_ENABLED=0 tests volume "$(of_packages $(volume_packages))" -trimpath -tags root -run "^($names)\$" "$@"
}
script_tests() { CGO_ENABLED=0 tests scripts "$(of_packages $(list ./test/e2e))" -trimpath "${only[@]}" "$@"; }
only=(${RUN:+-run "$RUN"})

prepare() {
  slow_known
  long_known
  modfile=$(scripts/gvisor.sh) # of runsc_tests
  rm -f .cache/tests-*.json .cache/tests-*.again
  CGO_ENABLED=0 scripts/go build -trimpath -modfile=tools/test/go.mod -o .cache/tools/gotestsum gotest.tools/gotestsum
  PATH="$(scripts/go env GOROOT)/bin:$PATH"
  # By default a program with the race detector sleeps a second before it
  # exits, and the scripts of test/e2e run hundreds. make lint does the vetting.
  export PATH GORACE="atexit_sleep_ms=10 ${GORACE:-}"
}

# gather puts the events of all kinds of tests together.
gather() {
  cat .cache/tests-*.json >.cache/tests.json 2>/dev/null || true
  grep -q '"Action":"run"' .cache/tests.json || { echo "no test has run: is there one in PACKAGES=${PACKAGES:-} with RUN=${RUN:-}?" >&2; return 1; }
}

# over FACTOR lists the packages that took longer than that many budgets.
over() {
  jq -r 'select(.Test == null and .Elapsed != null and (.Action == "pass" or .Action == "fail")) | "\(.Package) \(.Elapsed)"' .cache/tests.json |
    awk -v factor="$1" 'NR == FNR { if ($1 !~ /^#/) budget[$1] = $2; next }
      { took[$1] += $2 }
      END {
        for (p in took) {
          b = (p in budget) ? budget[p] : 20
          if (took[p] > b * factor) printf "%s took %.0f s, budget %d s\n", p, took[p], b
        }
      }' test/budgets.txt - | sort
}

# not_ten reads how often tests of a kind began and failed in ten runs, and prints
# what makes these red. A process that ends in the middle runs no further tests;
# examples run once however often.
not_ten() {
  for f in .cache/tests-*.json; do
    jq -r --arg kind "$(basename "$f" .json)" \
      'select(.Action == "run" or .Action == "fail") | "\($kind) \(.Package) \(.Test // "") \(.Action)"' "$f"
  done | awk '
    $3 == "fail" { failed_package[$1 " " $2] = 1; next }
    $4 == "fail" { failed[$2 " " $3]++; failed_in[$1 " " $2] = 1 }
    $4 == "run" && $3 !~ "/|^Example" { began[$1 " " $2 " " $3]++ }
    END {
      for (t in failed) if (failed[t] > 1) print t " failed " failed[t] " times"
      for (t in began) if (began[t] != 10) print t " ran " began[t] " times and not ten"
      for (p in failed_package) if (!(p in failed_in)) print p " failed outside of its tests"
    }' | sort
}

# leaves reads a report of tests that were run again, without those that failed
# because a test below them did.
leaves() {
  awk -F': ' '{ name[NR] = $1 } END {
    for (i = 1; i <= NR; i++) {
      parent = 0
      for (j = 1; j <= NR; j++) parent = parent || index(name[j], name[i] "/") == 1
      if (!parent) print name[i]
    }
  }'
}

case ${1:-} in
compile)
  # shellcheck disable=SC2046 # one argument a package
  scripts/go list "${race[@]}" -tags root -export -test $(raced) >/dev/null
  CGO_ENABLED=0 scripts/go list -trimpath -export -test ./test/e2e >/dev/null
  # The S3 server of internal/archive/archivetest.
  CGO_ENABLED=0 scripts/go build -trimpath -ldflags='-s -w' -modfile=tools/s3/go.mod -o .cache/tools/versitygw github.com/versity/versitygw/cmd/versitygw
  # shellcheck disable=SC2046 # as above
  CGO_ENABLED=0 scripts/go list -trimpath -tags root -export -test $(list "${programs[@]}") $(volume_packages) >/dev/null
  ;;
run | slow)
  kind=$1
  shift
  prepare
  again=(--rerun-fails=2 "--rerun-fails-max-failures=$most_again" --rerun-fails-abort-on-data-race)
  failed=0
  if [ "$kind" = run ]; then
    # What waits for sandboxes goes beside what computes, and both take as long.
    {
      result=0
      runsc_tests "$@" || result=1
      program_tests -p 2 "$@" || result=1
      in_memory script_tests "$@" || result=1
      in_memory volume_tests "$@" || result=1
      exit "$result"
    } &
    beside=$!
    in_memory raced_tests -p 2 "$@" || failed=1
  else
    slow_package_tests -p 2 "$@" &
    beside=$!
    in_memory slow_raced_tests -p 2 "$@" || failed=1
    slow_program_tests "$@" || failed=1
  fi
  wait "$beside" || failed=1
  gather || exit 1
  slow=$(over 1)
  [ -z "$slow" ] || printf 'packages over their budget:\n%s\n' "$slow"
  run_again=$(cat .cache/tests-*.again 2>/dev/null || true)
  if [ -n "$run_again" ]; then
    printf 'tests that did not pass at once:\n%s\n' "$run_again"
    [ "$(leaves <<<"$run_again" | wc -l)" -le "$most_again" ] || failed=1
  fi
  exit "$failed"
  ;;
in_memory)
  # What the programs' tests have mounted by now would stay mounted here as long
  # as these tests take, and their disks in use. Some have gone before it is their turn.
  awk '$2 ~ "^(/var)?/tmp/(cubby|small|Test|Benchmark)" { print $2 }' /proc/self/mounts | sort -r | xargs -r -n 1 umount --lazy --quiet || true
  mount -t tmpfs -o size=75% tests /media
  export TMPDIR=/media
  read -ra again <<<"$2"
  "${@:3}"
  ;;
budget)
  prepare
  again=()
  failed=0
  runsc_tests -count=1 || failed=1
  program_tests -p 1 -count=1 || failed=1
  slow_package_tests -p 1 -count=1 || failed=1
  slow_program_tests -p 1 -count=1 || failed=1
  in_memory raced_tests -p 1 -count=1 || failed=1
  in_memory slow_raced_tests -p 1 -count=1 || failed=1
  in_memory volume_tests -p 1 -count=1 || failed=1
  in_memory script_tests -count=1 || failed=1
  gather || exit 1
  slow=$(over 1.5)
  [ -z "$slow" ] || { printf 'packages over one and a half times their budget:\n%s\n' "$slow" >&2; exit 1; }
  exit "$failed"
  ;;
flaky)
  prepare
  again=()
  # Whether they pass is counted below.
  runsc_tests -count=10 -timeout 6h || true
  program_tests -p 2 -count=10 -timeout 6h || true
  slow_package_tests -p 2 -count=10 -timeout 6h || true
  slow_program_tests -p 2 -count=10 -timeout 6h || true
  in_memory raced_tests -p 2 -count=10 -timeout 6h || true
  in_memory slow_raced_tests -p 2 -count=10 -timeout 6h || true
  in_memory volume_tests -p 2 -count=10 -timeout 6h || true
  in_memory script_tests -count=10 -timeout 6h || true
  gather || exit 1
  failures=$(jq -r 'select(.Action == "fail" and .Test != null) | "\(.Package) \(.Test)"' .cache/tests.json | sort | uniq -c | sort -rn)
  # That of a subtest is one of its test too.
  [ -z "$failures" ] || printf 'failures of ten runs:\n%s\n' "$failures"
  red=$(not_ten)
  [ -z "$red" ] || { printf 'red:\n%s\n' "$red" >&2; exit 1; }
  ;;
long)
  shift
  prepare
  again=()
  parts=(agents e2e cli image security race drivers durability fuzz)
  [ $# = 0 ] || parts=("$@")
  long_tests() { CGO_ENABLED=0 tests "$1" "$(list "$2")" -trimpath -tags root,long -count=1 -timeout 6h "${@:3}"; }
  part() {
    case $1 in
    agents) long_tests long-agents ./internal/guestd/tasks -run "${RUN:-TestAgents}" ;;
    e2e) long_tests long-e2e ./test/e2e "${only[@]}" ;;
    cli) long_tests long-cli ./internal/cli "${only[@]}" ;;
    image) long_tests long-image ./internal/image "${only[@]}" ;;
    security) long_tests long-security ./test/security/... -p 1 "${only[@]}" ;;
    race)
      GOGC=$collect in_memory tests long-race-scripts "$(list ./test/e2e)" "${race[@]}" -count=1 "${only[@]}" &&
        CGO_ENABLED=1 scripts/go build -race -o bin/cubby-race ./cmd/cubby &&
        CUBBY_TEST_BIN=$PWD/bin/cubby-race long_tests long-race ./test/e2e -run 'TestReal$'
      ;;
    drivers) tests long-drivers "$(list ./internal/driver/oci)" -race -tags root -count=1 -timeout 6h ;;
    durability)
      for seed in $(shuf -i 1-4294967295 -n "${SEEDS:-50}"); do make --no-print-directory durability ROUNDS=6 CYCLES=20 "SEED=$seed" || return 1; done
      long_tests long-durability ./test/durability -run TestTwoHundredSleepers
      ;;
    fuzz) make --no-print-directory fuzz ;;
    *) echo "there is no part $1" >&2; return 2 ;;
    esac
  }
  failed=0
  times=
  for p in "${parts[@]}"; do
    began=$SECONDS result=ok
    part "$p" || failed=1 result=failed
    times+=$(printf '%-10s %6d s  %s' "$p" $((SECONDS - began)) "$result")$'\n'
    printf 'parts so far:\n%s' "$times"
  done
  exit "$failed"
  ;;
*)
  sed -n '2,27s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
