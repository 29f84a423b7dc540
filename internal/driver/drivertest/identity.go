package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
)

// nobody starts a sandbox without an identity.
func (s *suite) nobody(t *testing.T) (driver.Spec, driver.Handle) {
	t.Helper()
	spec := s.env.Spec(t)
	spec.Identity.ID = ""
	h, err := s.d.Create(s.ctx, spec)
	s.do(t, "Create", err)
	t.Cleanup(func() { _ = s.d.Destroy(context.Background(), h) })
	s.do(t, "Start", s.d.Start(s.ctx, h))
	s.is(t, h, driver.NobodysName, "")
	return spec, h
}

// identity is what a spec's sandbox becomes.
func identity(spec driver.Spec, id string) driver.Identity {
	return driver.Identity{ID: id, Env: append(spec.Identity.Env[:len(spec.Identity.Env):len(spec.Identity.Env)], "WHOSE="+id)}
}

func (s *suite) identify(t *testing.T, h driver.Handle, is driver.Identity) driver.Handle {
	t.Helper()
	next, err := s.d.Identify(s.ctx, h, is)
	s.do(t, "Identify", err)
	return next.Handle
}

// is checks what new commands see of the sandbox's name and environment.
func (s *suite) is(t *testing.T, h driver.Handle, name, env string) {
	t.Helper()
	if got := s.exec(t, h, "echo \"$WHOSE\""); got != env+"\n" {
		t.Errorf("WHOSE is %q, want %q", got, env+"\n")
	}
	if !s.env.OwnRoot {
		return // it has the host's name
	}
	got := s.exec(t, h, "hostname; uname -n; cat /proc/sys/kernel/hostname /etc/hostname; grep 127.0.1.1 /etc/hosts")
	if want := strings.Repeat(name+"\n", 4) + "127.0.1.1\t" + name + "\n"; got != want {
		t.Errorf("its name is %q, want %q", got, want)
	}
}

// A sandbox that ran before it belonged to anybody belongs to somebody, with all
// that runs in it, and goes on to do so.
func testIdentify(t *testing.T, s *suite) {
	spec, h := s.nobody(t)
	s.launch(t, h, "trap 'echo \"$WHOSE\" > asked; exit' TERM; echo $$ > pid; echo ready; while :; do sleep 0.02; done")
	before := s.bootID(t, h)
	old := h
	h = s.identify(t, h, identity(spec, "mine"))
	s.is(t, h, "mine", "mine")
	s.is(t, old, "mine", "mine") // the old handle is good for all else
	if after := s.bootID(t, h); after != before {
		t.Errorf("agent %s answers, want %s", after, before)
	}
	s.exec(t, h, "kill $(cat pid); while [ ! -e asked ]; do sleep 0.02; done")
	if got := s.exec(t, h, "cat asked"); got != "\n" {
		t.Errorf("what ran before knows %q, want that it keeps what it had", got)
	}

	if s.env.OwnRoot { // nobody inside gives it a name, root neither
		if got := s.execAs(t, h, "root", "hostname other 2>/dev/null && echo renamed || echo refused"); got != "refused\n" {
			t.Errorf("root inside: %q, want that it is refused", got)
		}
	}

	s.d = s.env.Reopen(t)
	s.do(t, "Adopt", s.d.Adopt(s.ctx, h))
	s.is(t, h, "mine", "mine")
	s.do(t, "Stop", s.d.Stop(s.ctx, h, 0))
	s.do(t, "Start", s.d.Start(s.ctx, h))
	s.is(t, h, "mine", "mine")
}

func testIdentifyAgain(t *testing.T, s *suite) {
	spec, nobodys := s.nobody(t)
	first := s.identify(t, nobodys, identity(spec, "first"))
	// As after a crash before the new handle was stored.
	if again := s.identify(t, nobodys, identity(spec, "first")); string(again) != string(first) {
		t.Errorf("another handle came of it: %s, want %s", again, first)
	}
	_, err := s.d.Identify(s.ctx, nobodys, identity(spec, "late"))
	wantKind(t, "Identify of what is somebody's", err, errs.Conflict)
	s.is(t, first, "first", "first")

	second := s.identify(t, first, identity(spec, "second"))
	s.is(t, second, "second", "second")
	_, err = s.d.Identify(s.ctx, first, identity(spec, "late"))
	wantKind(t, "Identify by a handle of before", err, errs.Conflict)

	other := identity(spec, "second")
	other.Env = append(other.Env, "WHOSE=another")
	third := s.identify(t, second, other)
	s.is(t, third, "second", "another")

	if s.env.OwnRoot { // what it made of the files that name it stays, when the name does
		s.execAs(t, third, "root", "echo own > /etc/hostname; echo 127.0.0.1 own > /etc/hosts")
		other.Env = append(other.Env, "WHOSE=a third")
		fourth := s.identify(t, third, other)
		if got := s.exec(t, fourth, "echo \"$WHOSE\"; hostname; cat /etc/hostname /etc/hosts"); got != "a third\nsecond\nown\n127.0.0.1 own\n" {
			t.Errorf("an identity of the same name leaves %q", got)
		}
	}
}

func testIdentifyRefuses(t *testing.T, s *suite) {
	spec, h := s.create(t)
	_, err := s.d.Identify(s.ctx, h, identity(spec, "mine"))
	wantKind(t, "Identify before a start", err, errs.Unavailable)
	s.do(t, "Start", s.d.Start(s.ctx, h))
	for _, id := range []string{"", strings.Repeat("x", 65), "a b", "a\nb"} {
		_, err := s.d.Identify(s.ctx, h, identity(spec, id))
		wantKind(t, fmt.Sprintf("Identify as %q", id), err, errs.Invalid)
	}
	// What it took here would keep it from its next start, and commands from
	// theirs.
	for what, kv := range map[string]string{
		"no value": "WHOSE", "no name": "=mine", "a NUL": "WHOSE=mi\x00ne", "no UTF-8": "WHOSE=\xff",
		"a large value": "WHOSE=" + strings.Repeat("x", 1<<20),
	} {
		is := identity(spec, "mine")
		is.Env = append(is.Env, kv)
		_, err := s.d.Identify(s.ctx, h, is)
		wantKind(t, "Identify with an entry that has "+what, err, errs.Invalid)
	}
	s.is(t, h, spec.Identity.ID, "")
	s.do(t, "Stop", s.d.Stop(s.ctx, h, 0))
	_, err = s.d.Identify(s.ctx, h, identity(spec, "mine"))
	wantKind(t, "Identify after a stop", err, errs.Unavailable)
}

// Of several who want to have one sandbox of nobody, one gets it.
func testIdentifyRace(t *testing.T, s *suite) {
	const many = 4
	spec, h := s.nobody(t)
	type answer struct {
		id  string
		h   driver.Handle
		err error
	}
	answers := make(chan answer, many)
	for i := range many {
		id := fmt.Sprintf("claim-%d", i)
		go func() {
			is, err := s.d.Identify(s.ctx, h, identity(spec, id))
			answers <- answer{id, is.Handle, err}
		}()
	}
	var won []answer
	for range many {
		switch a := <-answers; {
		case a.err == nil:
			won = append(won, a)
		case !errors.Is(a.err, errs.Conflict):
			t.Errorf("%s: %v, want a conflict", a.id, a.err)
		}
	}
	if len(won) != 1 {
		t.Fatalf("%d got it: %v", len(won), won)
	}
	s.is(t, won[0].h, won[0].id, won[0].id)
}

// Root inside cannot put a host of its own in the place of the agent's, and what
// it does to its files of names keeps nobody from naming the sandbox.
func testIdentifyInside(t *testing.T, s *suite) {
	spec, h := s.nobody(t)
	if s.env.OwnRoot { // else its files are the host's
		got := s.execAs(t, h, "root", `
			mv /run/cubby /run/other 2>/dev/null && echo moved
			mv /run /other 2>/dev/null && echo moved its parent
			rm -f /run/cubby/host.sock 2>/dev/null && echo removed
			touch /run/cubby/mine 2>/dev/null && echo made another
			cat /proc/1/environ >/dev/null 2>&1 && echo read the agent
			ls /run/cubby
			mv /etc /gone 2>/dev/null || rm -f /etc/hosts /etc/hostname 2>/dev/null
			exit 0`)
		if got != "host.sock\n" {
			t.Errorf("root inside: %q, want that it has the channel and no more", got)
		}
	}
	h = s.identify(t, h, identity(spec, "mine"))
	if got := s.exec(t, h, "echo \"$WHOSE\""); got != "mine\n" {
		t.Errorf("WHOSE is %q, want mine", got)
	}
}
