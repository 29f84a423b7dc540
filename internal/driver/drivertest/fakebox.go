package drivertest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/channel"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd"
)

// fakeBox is a sandbox of the machine below a Fake.
type fakeBox struct {
	spec   driver.Spec
	env    []string // of the machine
	socket string

	mu       sync.Mutex
	run      *fakeRun          // nil: neither runs nor sleeps; guarded by mu
	death    *driver.Death     // of the run before; guarded by mu
	listener *channel.Listener // that knows the secret below; guarded by mu
	known    string            // guarded by mu
	egress   string            // guarded by mu
}

type fakeRun struct {
	secret string
	cancel context.CancelFunc
	done   chan struct{}
	rested chan struct{} // closed while it sleeps; replaced by its wake; guarded by the box's mu
}

// mapPath puts the sandbox's own directories onto its disk.
func (b *fakeBox) mapPath(path string) string {
	for _, d := range b.dirs() {
		if path == d.inside || strings.HasPrefix(path, d.inside+"/") {
			return d.here + path[len(d.inside):]
		}
	}
	return path
}

type fakeDir struct{ inside, here string }

// dirs are the directories that are not this machine's; what is in another
// comes before it.
func (b *fakeBox) dirs() []fakeDir {
	var dirs []fakeDir
	for _, v := range b.spec.Volumes {
		if target := v.Role.Target(); target != "" {
			dirs = append(dirs, fakeDir{target, v.Dir})
		}
	}
	return append(dirs, fakeDir{driver.UserData, filepath.Join(driver.VolumeDir(b.spec.Volumes, driver.VolumeRoot), "user-data")})
}

// start runs the agent, with an identity, unless it runs.
func (b *fakeBox) start(is driver.Identity) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run != nil {
		return nil
	}
	if err := os.MkdirAll(b.mapPath(driver.UserData), 0o755); err != nil {
		return err
	}
	// All of 127/8 is the host's own: an address per run needs no look for a
	// port that is free.
	var a [3]byte
	_, _ = rand.Read(a[:])
	b.egress = fmt.Sprintf("127.%d.%d.%d:3128", a[0], a[1], 1+a[2]%254)

	ctx, cancel := context.WithCancel(context.Background())
	r := &fakeRun{secret: rand.Text(), cancel: cancel, done: make(chan struct{}), rested: make(chan struct{})}
	server := guestd.New(guestd.Config{
		Boot: &guestv1.Boot{
			Secret: r.secret, Socket: b.socket, Hostname: is.ID, Env: slices.Concat(b.env, is.Env),
			OpenFiles: b.spec.Limits.OpenFiles, EgressListen: b.egress,
		},
		Version: "fake",
		OneUser: true,
		MapPath: b.mapPath,
	})
	b.run, b.death = r, nil
	go func() {
		defer close(r.done)
		err := server.Serve(ctx)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.run != r {
			return // ended from outside, which knows why
		}
		b.run = nil
		b.death = &driver.Death{Cause: driver.DeathExit}
		if err != nil {
			b.death = &driver.Death{Cause: driver.DeathExit, Code: 1, Detail: err.Error()}
		}
	}()
	return nil
}

// asleep reports whether the run sleeps. The caller holds the box's lock.
func (r *fakeRun) asleep() bool {
	select {
	case <-r.rested:
		return true
	default:
		return false
	}
}

// sleep makes the run unreachable, or reachable again.
func (b *fakeBox) sleep(yes bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.run == nil:
		return errs.E(errs.WrongState, "sandbox is not running")
	case yes && !b.run.asleep():
		close(b.run.rested)
	case !yes && b.run.asleep():
		b.run.rested = make(chan struct{})
	}
	return nil
}

// end ends the run at once; a death without a cause is none.
func (b *fakeBox) end(death driver.Death) {
	b.mu.Lock()
	r := b.run
	if r != nil {
		b.run, b.death = nil, nil
		if death.Cause != driver.DeathNone {
			b.death = &death
		}
	}
	b.mu.Unlock()
	if r != nil {
		r.cancel()
		<-r.done
	}
}

// stop asks the agent to end everything, then ends the run.
func (b *fakeBox) stop(ctx context.Context, grace time.Duration) {
	b.mu.Lock()
	r, l := b.run, b.listener
	reachable := r != nil && !r.asleep() && l != nil
	b.mu.Unlock()
	if reachable {
		ctx, cancel := context.WithTimeout(ctx, grace+2*time.Second)
		defer cancel()
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) },
		}}
		_, _ = guestv1connect.NewGuestServiceClient(client, "http://guest").
			Shutdown(ctx, connect.NewRequest(&guestv1.ShutdownRequest{Grace: durationpb.New(grace), Stay: true}))
	}
	b.end(driver.Death{})
	b.mu.Lock()
	b.death = nil
	b.mu.Unlock()
}

func (b *fakeBox) running() (secret string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run == nil {
		return ""
	}
	return b.run.secret
}

func (b *fakeBox) hold(l *channel.Listener, secret string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listener, b.known = l, secret
}

func (b *fakeBox) heldSecret(l *channel.Listener) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener != l {
		return ""
	}
	return b.known
}

func (b *fakeBox) status() driver.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.run != nil && b.run.asleep():
		return driver.Status{Phase: driver.PhaseAsleep, MemoryOnDisk: 1 << 20}
	case b.run != nil:
		return driver.Status{Phase: driver.PhaseRunning}
	case b.death != nil:
		return driver.Status{Phase: driver.PhaseDead, Death: *b.death}
	}
	return driver.Status{Phase: driver.PhaseCreated}
}

func (b *fakeBox) wait(ctx context.Context) (driver.Death, error) {
	b.mu.Lock()
	r := b.run
	var rested chan struct{}
	if r != nil {
		rested = r.rested
	}
	b.mu.Unlock()
	if r != nil {
		select {
		case <-r.done:
		case <-rested:
			return driver.Death{}, nil
		case <-ctx.Done():
			return driver.Death{}, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.death != nil {
		return *b.death, nil
	}
	return driver.Death{}, nil
}
