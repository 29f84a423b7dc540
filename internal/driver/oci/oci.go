// Package oci runs sandboxes through OCI runtimes: runsc (gVisor), which cubby
// carries along and unpacks, and crun or runc of the host.
//
// # What stands on the host
//
// A prepared sandbox is a directory of notes below [Config.StateDir]; a
// running one is also the processes in a cgroup of its own, and nothing else:
// root filesystems, disks and the network namespace of a container are set up
// in a mount namespace that only its own processes hold, so they go away with
// the last of these, also when the daemon was killed in the middle. What runs
// is found again by its cgroup and the notes, never by names of processes.
//
// # What it refuses
//
// It never weakens an isolation that the host cannot give, writes to no image,
// and keeps no sandbox alive from its own process. It knows neither images nor
// disks nor policies: those arrive as paths and numbers in the spec.
package oci

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/cgroup"
	"github.com/cubbyhq/cubby/internal/driver/oci/filelocks"
	"github.com/cubbyhq/cubby/internal/driver/oci/idrange"
	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
	"github.com/cubbyhq/cubby/internal/driver/oci/runtimes"
	"github.com/cubbyhq/cubby/internal/driver/oci/spare"
	"github.com/cubbyhq/cubby/internal/driver/oci/truststore"
	"github.com/cubbyhq/cubby/internal/driver/oci/userns"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Config says where a driver keeps things. The zero values of the other
// fields are right for a host.
type Config struct {
	StateDir    string // notes, channels and memories of sandboxes, DATA/run/oci
	RuntimesDir string // unpacked embedded programs, DATA/runtimes
	// DataDir and ImageDir may be moved, each with all that is below it, while nothing
	// runs. "" for one that does not.
	DataDir, ImageDir string
	Log               *slog.Logger

	// CgroupParent is the cgroup below which sandboxes get theirs. Default
	// "cubby".
	CgroupParent string
	// FavorMoves lets the host move processes between cgroups without a wait, see
	// [cgroup.FavorMoves].
	FavorMoves bool
	// Sentries is how many kernels of gVisor are kept that were started ahead. They
	// need quick moves.
	Sentries int
	// ContainerRuntime is the program for sandbox.Container. Default: crun,
	// else runc, from PATH.
	ContainerRuntime string
	// DiskReserve is how many bytes of the disk that StateDir is on stay free of kept
	// memories. Default: see [hostdisk.Space.Reserve].
	DiskReserve int64
	// Init and Runsc name programs to use instead of the embedded ones.
	Init, Runsc string
}

// Driver implements driver.Driver.
type Driver struct {
	cfg     Config
	log     *slog.Logger
	cgroups cgroup.Hierarchy
	progs   programs
	places  places

	locks       *filelocks.Watch // bounds the file locks of containers
	namespaces  *userns.Namespaces
	networks    *spare.Spares[containerNetwork]
	authorities truststore.Files
	kept        memory.Programs // of the memories
	runtimes    runtimes.Known
	sentries    *sentries

	hostID string // changes with every boot of the host
	nofile uint64 // this process's hard limit, the most that anybody below gets
	oom    int    // oom_score_adj of sandboxes

	redirected atomic.Bool // containers can be redirected, as was seen; see redirects
	// redirectFailed is when it was seen that they cannot; nil: it was not.
	redirectFailed atomic.Pointer[time.Time]
	probe          sync.Once
	capabilities   driver.Capabilities // set by probe

	mu   sync.Mutex
	runs map[sandbox.UID]*run // what this process holds of running sandboxes; guarded by mu
}

// sandboxScore is added to this process's oom_score_adj: as if each process of a
// sandbox had a fifth of the host's memory more than it has. The agent gives the
// commands of a container 300, which must be more than this: they go before
// their supervisors.
const sandboxScore = 200

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.Sleeper     = (*Driver)(nil)
	_ driver.Snapshotter = (*Driver)(nil)
	_ driver.Stocker     = (*Driver)(nil)
)

// New opens the driver: it makes its directories, looks at the host and sets
// its cgroups up. It starts nothing and touches no sandbox. What the host cannot
// do is said by
// [Driver.Capabilities] and by Create, not here.
func New(cfg Config) (*Driver, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.CgroupParent == "" {
		cfg.CgroupParent = "cubby"
	}
	for _, dir := range []*string{&cfg.StateDir, &cfg.RuntimesDir} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return nil, err
		}
		*dir = abs
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.RuntimesDir, 0o755); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(cfg.StateDir, sharedName), 0o700); err != nil {
		return nil, err
	}
	hostID, err := os.ReadFile(bootID)
	if err != nil {
		return nil, err
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, err
	}
	// A daemon may be protected from the host's out-of-memory killer; its
	// sandboxes go first in any case, however large it is. One that was given
	// more than 99 leaves them less than sandboxScore more than itself, or
	// nothing.
	oom, err := cgroup.Number("/proc/self/oom_score_adj")
	if err != nil {
		return nil, err
	}
	d := &Driver{
		oom:    int(min(max(oom, 0)+sandboxScore, max(oom, 299))),
		cfg:    cfg,
		log:    cfg.Log,
		hostID: string(hostID[:len(hostID)-1]),
		nofile: limit.Max,
		runs:   make(map[sandbox.UID]*run),

		places:     places{data: cfg.DataDir, images: cfg.ImageDir, runtimes: cfg.RuntimesDir},
		locks:      filelocks.New(cfg.Log),
		namespaces: userns.New(idrange.Open(idrange.Locks), spareNamespaces, refillAfter),
	}
	d.networks = spare.New(spareNamespaces, refillAfter, d.newNetwork, func(n containerNetwork) { _ = n.Close() })
	d.cgroups = cgroup.Open(cfg.CgroupParent)
	quick := false
	if cfg.FavorMoves {
		quick, err = cgroup.FavorMoves()
		if err != nil {
			d.log.Warn("moves of processes between cgroups stay slow", "err", err)
		}
		d.log.Debug("moves of processes between cgroups", "quick", quick)
	}
	if !quick {
		cfg.Sentries = 0 // to move one into the cgroup of a sandbox would take longer than to make it
	}
	d.sentries = newSentries(d, cfg.Sentries)
	d.progs = programs{dir: cfg.RuntimesDir, init: cfg.Init, runsc: cfg.Runsc, container: cfg.ContainerRuntime}
	if err := d.prune(); err != nil {
		d.log.Warn("programs of earlier versions were not removed", "err", err)
	}
	return d, nil
}

// sharedName is the directory of what runs of gVisor share.
const sharedName = "shared"

func (d *Driver) sharedDir() string { return filepath.Join(d.cfg.StateDir, sharedName) }

// Name implements driver.Driver.
func (d *Driver) Name() string { return "oci" }

// Capabilities implements driver.Driver. It looks for what an isolation needs
// and does not start one.
func (d *Driver) Capabilities() driver.Capabilities {
	d.probe.Do(func() {
		for _, isolation := range []sandbox.Isolation{sandbox.GVisor, sandbox.Container} {
			support := driver.IsolationSupport{Isolation: isolation}
			var p program
			if p, _, support.Err = d.support(isolation); support.Err == nil {
				support.Detail = fmt.Sprintf("%s, %s", p.describe(), d.cgroups)
			}
			d.capabilities.Isolations = append(d.capabilities.Isolations, support)
		}
	})
	return driver.Capabilities{Isolations: slices.Clone(d.capabilities.Isolations)}
}

// support finds the programs that an isolation needs, or says what is missing.
func (d *Driver) support(isolation sandbox.Isolation) (runtime, agent program, err error) {
	if os.Geteuid() != 0 {
		return runtime, agent, errs.E(errs.Unsupported, "sandboxes need root").
			Hint("run cubby as root, or through its systemd service")
	}
	if err := d.cgroups.Usable(); err != nil {
		return runtime, agent, err
	}
	if agent, err = d.progs.agent(); err != nil {
		return runtime, agent, err
	}
	runtime, err = d.progs.runtime(isolation)
	return runtime, agent, err
}

// DialGuest implements driver.Driver.
func (d *Driver) DialGuest(ctx context.Context, h driver.Handle) (net.Conn, error) {
	r, err := d.held(h)
	if err != nil {
		return nil, err
	}
	return r.line().Dial(ctx)
}

// AcceptEgress implements driver.Driver.
func (d *Driver) AcceptEgress(ctx context.Context, h driver.Handle) (net.Conn, sandbox.Door, error) {
	r, err := d.held(h)
	if err != nil {
		return nil, "", err
	}
	return r.line().AcceptEgress(ctx)
}

// held returns what this process holds of a running sandbox.
func (d *Driver) held(h driver.Handle) (*run, error) {
	n, err := d.places.parse(h)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	r := d.runs[n.UID]
	d.mu.Unlock()
	if r == nil {
		return nil, errs.E(errs.Unavailable, "sandbox is not running").Hint("start it first")
	}
	return r, nil
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.mu.Lock()
	runs := d.runs
	d.runs = make(map[sandbox.UID]*run)
	d.mu.Unlock()
	for _, r := range runs {
		r.release()
	}
	d.locks.Close()
	d.namespaces.Close()
	d.networks.Close()
	d.sentries.close()
	unmountNetns(d.sharedDir()) // those that use it keep it
	d.cgroups.Tidy()
	return nil
}
