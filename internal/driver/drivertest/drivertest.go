// Package drivertest is the conformance suite of the driver contract: [Run]
// proves every sentence of it on a real driver, and [Fake] is a driver that
// passes without root, isolation or installed programs, for the tests of core
// and of the doors.
package drivertest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Env is what the suite needs to know of the driver under test.
type Env struct {
	// Spec returns a new valid spec with a fresh uid, image and volumes. The
	// image has sh, cat and sleep. The suite's commands name files relative
	// to /workspace, which a driver without isolation does not have.
	Spec func(t *testing.T) driver.Spec
	// Reopen returns a second driver over the same state, as a restarted
	// daemon would open it. The first one is as good as killed.
	Reopen func(t *testing.T) driver.Driver
	// Crash kills a running sandbox behind the driver's back, with SIGKILL.
	Crash func(t *testing.T, uid sandbox.UID)
	// ForgetsDeaths: whether a crash was a signal may be known or not.
	ForgetsDeaths bool
	// Egress opens a stream to the proxy port inside a running sandbox, says
	// "ping" and returns what comes back. Nil: with nc in the sandbox.
	Egress func(t *testing.T, uid sandbox.UID) string
	// OwnRoot: the sandbox has a root filesystem of its own, whose changes
	// outlive a stop.
	OwnRoot bool
	// KeepsMemory: what runs in a sandbox runs in what is restored from its
	// snapshots too.
	KeepsMemory bool
	// DamageSnapshot changes a byte of a snapshot. Nil where there are none.
	DamageSnapshot func(t *testing.T, name sandbox.UID)
}

// patience bounds every step of the suite; nothing is expected to take it.
const patience = 3 * time.Minute

// Run proves the contract, and that of each ability that the driver has. setup
// is called once per subtest; subtests run in parallel.
func Run(t *testing.T, setup func(t *testing.T) (driver.Driver, Env)) {
	tests := []suiteTest{
		{"name", testName},
		{"life", testLife},
		{"create refuses", testCreateRefuses},
		{"create begins afresh", testCreateBeginsAfresh},
		{"create twice", testCreateTwice},
		{"start twice", testStartTwice},
		{"start after failure", testStartAfterFailure},
		{"stop keeps files", testStopKeepsFiles},
		{"stop gives grace", testStopGivesGrace},
		{"stop what does not run", testStopIdle},
		{"destroy in every state", testDestroy},
		{"destroyed is gone", testGone},
		{"wait", testWait},
		{"death", testDeath},
		{"start after death", testStartAfterDeath},
		{"adopt", testAdopt},
		{"adopt refuses", testAdoptRefuses},
		{"stop after restart", testStopAfterRestart},
		{"death while away", testDeathWhileAway},
		{"list and sweep", testListAndSweep},
		{"list says what inspect says", testListStatus},
		{"malformed handle", testMalformedHandle},
		{"dial", testDial},
		{"egress", testEgress},
		{"stats", testStats},
		{"environment", testEnvironment},
		{"identify is the host's alone", testIdentifyInside},
		{"identify", testIdentify},
		{"identify is repeated and replaced", testIdentifyAgain},
		{"identify refuses", testIdentifyRefuses},
		{"identify of one by two", testIdentifyRace},
		{"side by side", testSideBySide},
		{"close leaves sandboxes", testClose},
	}
	t.Run("abilities", func(t *testing.T) {
		d, _ := setup(t)
		if _, ok := driver.As[driver.Sleeper](d); ok {
			tests = append(tests, sleeperTests()...)
		}
		if _, ok := driver.As[driver.Snapshotter](d); ok {
			tests = append(tests, snapshotterTests()...)
		}
		if _, ok := driver.As[driver.TreeKiller](d); ok {
			tests = append(tests, treeKillerTests()...)
		}
		if _, ok := driver.As[driver.OOMReader](d); ok {
			tests = append(tests, oomReaderTests()...)
		}
	})
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			d, env := setup(t)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			t.Cleanup(cancel)
			tt.run(t, &suite{ctx: ctx, d: d, env: env})
		})
	}
}

type suiteTest struct {
	name string
	run  func(t *testing.T, s *suite)
}

type suite struct {
	ctx context.Context
	d   driver.Driver
	env Env
}

// create makes a sandbox that ends with the test.
func (s *suite) create(t *testing.T) (driver.Spec, driver.Handle) {
	t.Helper()
	spec := s.env.Spec(t)
	h, err := s.d.Create(s.ctx, spec)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.d.Destroy(ctx, h); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	})
	return spec, h
}

func (s *suite) start(t *testing.T) (driver.Spec, driver.Handle) {
	t.Helper()
	spec, h := s.create(t)
	s.do(t, "Start", s.d.Start(s.ctx, h))
	return spec, h
}

func (s *suite) do(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func (s *suite) phase(t *testing.T, h driver.Handle, want driver.Phase) driver.Death {
	t.Helper()
	status, err := s.d.Inspect(s.ctx, h)
	if err != nil || status.Phase != want {
		t.Fatalf("Inspect = %+v, %v; want phase %s", status, err, want)
	}
	return status.Death
}

func (s *suite) listed(t *testing.T, uid sandbox.UID, want bool) {
	t.Helper()
	if _, got := s.found(t, uid); got != want {
		t.Fatalf("List names the sandbox = %v, want %v", got, want)
	}
}

// found is what the listing says of a sandbox.
func (s *suite) found(t *testing.T, uid sandbox.UID) (driver.Found, bool) {
	t.Helper()
	list, err := s.d.List(s.ctx)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	if !slices.IsSortedFunc(list, func(a, b driver.Found) int { return strings.Compare(string(a.UID), string(b.UID)) }) {
		t.Errorf("the list is not sorted: %v", list)
	}
	i := slices.IndexFunc(list, func(f driver.Found) bool { return f.UID == uid })
	if i < 0 {
		return driver.Found{}, false
	}
	return list[i], true
}

func wantKind(t *testing.T, what string, err error, kinds ...errs.Kind) {
	t.Helper()
	for _, k := range kinds {
		if errors.Is(err, k) {
			return
		}
	}
	t.Fatalf("%s = %v, want one of %v", what, err, kinds)
}

func testName(t *testing.T, s *suite) {
	name := s.d.Name()
	if s.d = s.env.Reopen(t); name == "" || s.d.Name() != name {
		t.Errorf("its names are %q and %q, want one that stays", name, s.d.Name())
	}
	for of, want := range map[string]bool{name: true, "": true, name + "2": false} {
		if err := driver.Serves(s.d, of); (err == nil) != want || err != nil && !errors.Is(err, errs.Unsupported) {
			t.Errorf("Serves of %q = %v, want %v", of, err, want)
		}
	}
}

func testLife(t *testing.T, s *suite) {
	spec, h := s.create(t)
	s.phase(t, h, driver.PhaseCreated)
	s.listed(t, spec.UID, true)
	s.do(t, "Start", s.d.Start(s.ctx, h))
	s.phase(t, h, driver.PhaseRunning)
	s.listed(t, spec.UID, true)
	if out := s.exec(t, h, "echo $((1+1))"); out != "2\n" {
		t.Errorf("echo $((1+1)) = %q, want %q", out, "2\n")
	}
	s.do(t, "Stop", s.d.Stop(s.ctx, h, time.Second))
	s.phase(t, h, driver.PhaseCreated)
	s.do(t, "Destroy", s.d.Destroy(s.ctx, h))
	s.phase(t, h, driver.PhaseGone)
	s.listed(t, spec.UID, false)
}

func testCreateRefuses(t *testing.T, s *suite) {
	tests := []struct {
		name  string
		spoil func(*driver.Spec)
	}{
		{"isolation", func(s *driver.Spec) { s.Isolation = "wishful" }},
		{"no memory", func(s *driver.Spec) { s.Limits.MemoryBytes = 0 }},
		{"no pids", func(s *driver.Spec) { s.Limits.PIDs = 0 }},
		{"relative volume", func(s *driver.Spec) { s.Volumes[0].Dir = "disk" }},
		{"no volume for a role", func(s *driver.Spec) { s.Volumes = s.Volumes[1:] }},
		{"two volumes of a role", func(s *driver.Spec) {
			s.Volumes = append(s.Volumes, driver.Volume{Role: s.Volumes[0].Role, Dir: "/tmp"})
		}},
		{"unknown role", func(s *driver.Spec) { s.Volumes = append(s.Volumes, driver.Volume{Role: "cache", Dir: "/tmp"}) }},
		{"one directory twice", func(s *driver.Spec) { s.Volumes[0].Dir = s.Volumes[1].Dir }},
		{"long id", func(s *driver.Spec) { s.Identity.ID = strings.Repeat("x", 65) }},
		{"relative rootfs", func(s *driver.Spec) { s.Image.Dir = "../rootfs" }},
		{"uid", func(s *driver.Spec) { s.UID = "../../etc" }},
	}
	for _, tt := range tests {
		spec := s.env.Spec(t)
		tt.spoil(&spec)
		_, err := s.d.Create(s.ctx, spec)
		wantKind(t, tt.name, err, errs.Invalid, errs.Unsupported)
		s.listed(t, spec.UID, false)
	}
}

// The changes of another sandbox to its root filesystem, on volumes that are
// used again, go; its files stay.
func testCreateBeginsAfresh(t *testing.T, s *suite) {
	spec := s.env.Spec(t)
	for _, v := range spec.Volumes {
		if err := os.MkdirAll(filepath.Join(v.Dir, "upper"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h, err := s.d.Create(s.ctx, spec)
	s.do(t, "Create", err)
	defer func() { s.do(t, "Destroy", s.d.Destroy(s.ctx, h)) }()
	for _, v := range spec.Volumes {
		_, err := os.Stat(filepath.Join(v.Dir, "upper"))
		if stayed := err == nil; stayed != (v.Role != driver.VolumeRoot) {
			t.Errorf("what was on the volume %s stayed = %v", v.Role, stayed)
		}
	}
}

func testCreateTwice(t *testing.T, s *suite) {
	spec, h := s.start(t)
	_, err := s.d.Create(s.ctx, spec)
	wantKind(t, "second Create", err, errs.Conflict)
	s.phase(t, h, driver.PhaseRunning)
	s.exec(t, h, "true")
}

func testStartTwice(t *testing.T, s *suite) {
	_, h := s.start(t)
	before := s.bootID(t, h)
	s.do(t, "second Start", s.d.Start(s.ctx, h))
	if after := s.bootID(t, h); after != before {
		t.Errorf("a second start made another agent: %s, want %s", after, before)
	}
}

func testStartAfterFailure(t *testing.T, s *suite) {
	_, h := s.create(t)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if err := s.d.Start(ctx, h); err == nil {
		t.Fatal("Start with a canceled context succeeded")
	}
	s.phase(t, h, driver.PhaseCreated)
	s.do(t, "Start", s.d.Start(s.ctx, h))
	s.exec(t, h, "true")
}

func testStopKeepsFiles(t *testing.T, s *suite) {
	spec, h := s.start(t)
	s.exec(t, h, "echo one > a")
	if s.env.OwnRoot {
		s.execAs(t, h, "root", "echo two > /home/sandbox/b && echo three > /etc/c && mkdir -p /opt/d && rm /etc/group && ln -s c /etc/e")
	}
	before := s.bootID(t, h)
	for range 2 { // files survive more than one round
		s.do(t, "Stop", s.d.Stop(s.ctx, h, time.Second))
		if got, err := os.ReadFile(filepath.Join(driver.VolumeDir(spec.Volumes, driver.VolumeWorkspace), "a")); err != nil || string(got) != "one\n" {
			t.Errorf("on the stopped sandbox's disk: %q, %v; want %q", got, err, "one\n")
		}
		s.do(t, "Start", s.d.Start(s.ctx, h))
		if got := s.exec(t, h, "cat a"); got != "one\n" {
			t.Errorf("a = %q, want %q", got, "one\n")
		}
		if s.env.OwnRoot {
			if got := s.exec(t, h, "cat /etc/e /home/sandbox/b; test -d /opt/d && test ! -e /etc/group && echo kept"); got != "three\ntwo\nkept\n" {
				t.Errorf("system files after stop and start: %q, want %q", got, "three\ntwo\nkept\n")
			}
		}
	}
	if after := s.bootID(t, h); after == before {
		t.Error("the same agent answers after stop and start")
	}
}

func testStopGivesGrace(t *testing.T, s *suite) {
	spec, h := s.start(t)
	s.launch(t, h, "trap 'echo bye > bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
	s.do(t, "Stop", s.d.Stop(s.ctx, h, 10*time.Second))
	if got, err := os.ReadFile(filepath.Join(driver.VolumeDir(spec.Volumes, driver.VolumeWorkspace), "bye")); err != nil || string(got) != "bye\n" {
		t.Errorf("what the command wrote on SIGTERM: %q, %v; want %q", got, err, "bye\n")
	}
}

func testStopIdle(t *testing.T, s *suite) {
	_, h := s.create(t)
	s.do(t, "Stop before any start", s.d.Stop(s.ctx, h, time.Second))
	s.do(t, "Start", s.d.Start(s.ctx, h))
	s.do(t, "Stop", s.d.Stop(s.ctx, h, 0))
	s.do(t, "second Stop", s.d.Stop(s.ctx, h, 0))
	s.phase(t, h, driver.PhaseCreated)
}

func testDestroy(t *testing.T, s *suite) {
	states := map[string]func(h driver.Handle, uid sandbox.UID){
		"created": func(driver.Handle, sandbox.UID) {},
		"running": func(h driver.Handle, _ sandbox.UID) { s.do(t, "Start", s.d.Start(s.ctx, h)) },
		"stopped": func(h driver.Handle, _ sandbox.UID) {
			s.do(t, "Start", s.d.Start(s.ctx, h))
			s.do(t, "Stop", s.d.Stop(s.ctx, h, 0))
		},
		"dead": func(h driver.Handle, uid sandbox.UID) {
			s.do(t, "Start", s.d.Start(s.ctx, h))
			s.env.Crash(t, uid)
		},
	}
	for name, reach := range states {
		spec, h := s.create(t)
		reach(h, spec.UID)
		for range 2 {
			if err := s.d.Destroy(s.ctx, h); err != nil {
				t.Fatalf("%s: Destroy: %v", name, err)
			}
			s.phase(t, h, driver.PhaseGone)
			s.listed(t, spec.UID, false)
		}
	}
}

func testGone(t *testing.T, s *suite) {
	_, h := s.start(t)
	s.do(t, "Destroy", s.d.Destroy(s.ctx, h))
	death, err := s.d.Wait(s.ctx, h)
	if err != nil || death.Cause != driver.DeathNone {
		t.Errorf("Wait = %+v, %v; want no death", death, err)
	}
	wantKind(t, "Adopt", s.d.Adopt(s.ctx, h), errs.NotFound)
	_, err = s.d.DialGuest(s.ctx, h)
	wantKind(t, "DialGuest", err, errs.Unavailable, errs.NotFound)
	s.do(t, "Stop", s.d.Stop(s.ctx, h, 0))
}

func testMalformedHandle(t *testing.T, s *suite) {
	for _, h := range []driver.Handle{nil, {}, driver.Handle("{"), driver.Handle(`{"v":1,"uid":"../../etc"}`)} {
		if _, err := s.d.Inspect(s.ctx, h); err == nil {
			if _, err := s.d.DialGuest(s.ctx, h); err == nil {
				t.Errorf("a stream came out of the handle %q", h)
			}
		}
	}
}

func testDial(t *testing.T, s *suite) {
	_, h := s.create(t)
	_, err := s.d.DialGuest(s.ctx, h)
	wantKind(t, "DialGuest before start", err, errs.Unavailable)
	s.do(t, "Start", s.d.Start(s.ctx, h))
	for range 20 { // more than any pool of spare connections
		conn, err := s.d.DialGuest(s.ctx, h)
		if err != nil {
			t.Fatalf("DialGuest: %v", err)
		}
		defer conn.Close()
	}
	s.do(t, "Stop", s.d.Stop(s.ctx, h, 0))
	_, err = s.d.DialGuest(s.ctx, h)
	wantKind(t, "DialGuest after stop", err, errs.Unavailable)
}

func testEgress(t *testing.T, s *suite) {
	spec, h := s.start(t)
	served := make(chan error, 1)
	go func() {
		conn, _, err := s.d.AcceptEgress(s.ctx, h)
		if err != nil {
			served <- err
			return
		}
		defer conn.Close()
		word := make([]byte, 4)
		if _, err := io.ReadFull(conn, word); err != nil {
			served <- err
			return
		}
		_, err = conn.Write(append(word, []byte(" pong")...))
		served <- err
	}()
	egress := s.env.Egress
	if egress == nil {
		egress = func(t *testing.T, _ sandbox.UID) string {
			return s.exec(t, h, "(printf ping; sleep 1) | nc 127.0.0.1 3128")
		}
	}
	if got := egress(t, spec.UID); got != "ping pong" {
		t.Errorf("through the proxy port came %q, want %q", got, "ping pong")
	}
	s.do(t, "the host's end", <-served)

	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, _, err := s.d.AcceptEgress(ctx, h); err == nil {
		t.Error("AcceptEgress outlived its context")
	}
	go func() {
		_, _, err := s.d.AcceptEgress(s.ctx, h)
		served <- err
	}()
	s.do(t, "Stop", s.d.Stop(s.ctx, h, 0))
	if err := <-served; err == nil {
		t.Error("AcceptEgress outlived the sandbox")
	}
}

func testStats(t *testing.T, s *suite) {
	_, h := s.create(t)
	if _, err := s.d.Stats(s.ctx, h); err == nil {
		t.Error("Stats of a sandbox that does not run: no error")
	}
	s.do(t, "Start", s.d.Start(s.ctx, h))
	s.exec(t, h, "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done")
	stats, err := s.d.Stats(s.ctx, h)
	if err != nil || stats.MemoryBytes <= 0 || stats.CPUTime <= 0 || stats.PIDs == 0 {
		t.Errorf("Stats = %+v, %v; want memory, cpu time and pids", stats, err)
	}
}

func testEnvironment(t *testing.T, s *suite) {
	spec := s.env.Spec(t)
	spec.Identity.Env = append(spec.Identity.Env, "CUBBY_TEST=a b=c", "CUBBY_LONG="+strings.Repeat("x", 100_000))
	h, err := s.d.Create(s.ctx, spec)
	s.do(t, "Create", err)
	t.Cleanup(func() { _ = s.d.Destroy(context.Background(), h) })
	s.do(t, "Start", s.d.Start(s.ctx, h))
	if got := s.exec(t, h, `echo "$CUBBY_TEST ${#CUBBY_LONG}"`); got != "a b=c 100000\n" {
		t.Errorf("environment = %q, want %q", got, "a b=c 100000\n")
	}
}

func testSideBySide(t *testing.T, s *suite) {
	const many = 4
	errors := make(chan error, many)
	for range many {
		_, h := s.create(t)
		go func() { errors <- s.d.Start(s.ctx, h) }()
	}
	for range many {
		if err := <-errors; err != nil {
			t.Errorf("Start: %v", err)
		}
	}
}
