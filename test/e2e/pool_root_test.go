//go:build root

package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cubbyhq/cubby/test/harness"
)

// pool lends running daemons, each to one script at a time. What a data
// directory needs once, such as unpacking gVisor, takes longer than most
// scripts.
type pool struct {
	t    testing.TB
	idle chan *harness.Daemon
}

func newPool(t testing.TB, size int) *pool {
	t.Helper()
	p := &pool{t: t, idle: make(chan *harness.Daemon, size)}
	for range size {
		p.idle <- harness.New(t, harness.Options{})
	}
	return p
}

// lent is what a script of [TestReal] talks to: a daemon of the pool, or one of
// its own.
type lent struct {
	t        testing.TB
	pool     *pool
	borrowed *harness.Daemon // nil before borrow
	logged   int             // length of its log before this script
	own      realHost        // without a daemon before start
}

func (h *lent) start(flags []string, own bool) (url string, err error) {
	switch {
	case h.borrowed != nil:
		return "", errors.New("this script has a daemon that others use after it; it wants `daemon own`")
	case h.own.Daemon != nil:
		return h.own.start(flags)
	case own || len(flags) > 0:
		h.own = newReal(h.t, harness.Options{})
		return h.own.start(flags)
	}
	d := <-h.pool.idle
	h.t.Cleanup(h.giveBack)
	h.borrowed, h.logged = d, 0
	if !d.Running() {
		return d.URL, d.Start()
	}
	h.logged = len(d.Log())
	return d.URL, nil
}

func (h *lent) stop() error {
	if h.own.Daemon == nil {
		return errors.New("only a script with `daemon own` or flags stops its daemon")
	}
	return h.own.stop()
}

func (h *lent) kill() error {
	if h.own.Daemon == nil {
		return errors.New("only a script with `daemon own` or flags kills its daemon")
	}
	return h.own.kill()
}

func (h *lent) environ() map[string]string {
	if h.borrowed != nil {
		return realHost{h.borrowed}.environ()
	}
	return h.own.environ()
}

// giveBack checks what the script left on the host. The next script meets no
// daemon that this one failed with.
func (h *lent) giveBack() {
	d := h.borrowed
	defer func() { h.pool.idle <- d }()
	err := harness.PurgeAll(d.URL)
	if err == nil {
		err = nothingMounted(d.Dir)
	}
	if err != nil {
		h.t.Errorf("after the script: %v", err)
	}
	if h.t.Failed() {
		h.t.Logf("the daemon's log:\n%s", d.Log()[h.logged:])
		_ = d.Stop() // it reports
	}
}

// nothingMounted tells of mounts that a daemon without sandboxes should not
// have.
func nothingMounted(dir string) error {
	left := slices.DeleteFunc(harness.MountsBelow(dir), harness.OwnMount)
	if len(left) > 0 {
		return fmt.Errorf("left mounted: %q", left)
	}
	return nil
}
