// Package daemon assembles cubby: it is the one place where all packages meet.
// It holds no behaviour of its own beyond order: what is opened before what,
// and what stops after what. It refuses to share a data directory with another
// daemon.
package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	agentsettings "github.com/cubbyhq/cubby/internal/agent/settings"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/backup/take"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/core/history"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/program"
	"github.com/cubbyhq/cubby/internal/core/snapshot"
	"github.com/cubbyhq/cubby/internal/core/threads"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci"
	"github.com/cubbyhq/cubby/internal/egress"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/backups"
	"github.com/cubbyhq/cubby/internal/front/compat/ecs"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/front/mcp"
	"github.com/cubbyhq/cubby/internal/front/terminal"
	"github.com/cubbyhq/cubby/internal/front/tunnel"
	"github.com/cubbyhq/cubby/internal/hostfiles"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/packages"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/storage/local"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Daemon is one assembled cubby.
type Daemon struct {
	cfg     config.Config
	log     *slog.Logger
	metrics *telemetry.Metrics
	notify  notifier

	// In the order in which they are opened; closed the other way round.
	closers  []io.Closer
	store    *store.Store
	journals *journal.Journals
	driver   driver.Driver
	disks    *local.Disks
	core     *core.Service
	backups  *take.Taker
	agent    agentParts

	listener  net.Listener
	second    net.Listener // nil: none
	server    *http.Server
	terminals *terminal.Door
	tunnels   *tunnel.Door
	refuse    func(http.ResponseWriter, *http.Request, error) // answers in the dialect of a path
	agents    *mcp.Door
	previews  *previews // nil: none
	memory    *front.Budget
	fresh     freshConns
	drain     context.CancelFunc // ends streams and waits
	cut       context.CancelFunc // ends every request
}

// Option changes what a Daemon is assembled from, for tests.
type Option func(*options)

type options struct {
	driver     driver.Driver
	log        *slog.Logger
	defaults   sandbox.Spec
	plainDisks bool
	supervisor []string
	host       admission.Host
	now        func() time.Time
	getenv     func(string) string
	asking     *agentsettings.Asking
}

// WithDriver replaces the embedded OCI driver. The daemon closes it.
func WithDriver(d driver.Driver) Option { return func(o *options) { o.driver = d } }

// WithLog replaces the logger that writes to standard error.
func WithLog(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// WithDefaults replaces what a create leaves open.
func WithDefaults(s sandbox.Spec) Option { return func(o *options) { o.defaults = s } }

// WithClock replaces the clock that sandboxes' use and age are told by.
func WithClock(now func() time.Time) Option { return func(o *options) { o.now = now } }

// WithPlainDisks makes sandboxes' disks directories without quota.
func WithPlainDisks() Option { return func(o *options) { o.plainDisks = true } }

// WithHost replaces what is measured of the machine, where it is not zero.
func WithHost(h admission.Host) Option { return func(o *options) { o.host = h } }

// WithTaskSupervisor replaces the program that does the tasks of coding agents.
func WithTaskSupervisor(command ...string) Option { return func(o *options) { o.supervisor = command } }

// WithEnvironment replaces the environment in which the agent's providers are looked
// for.
func WithEnvironment(getenv func(string) string) Option {
	return func(o *options) { o.getenv = getenv }
}

// WithAsking replaces how providers are asked for their models.
func WithAsking(a agentsettings.Asking) Option { return func(o *options) { o.asking = &a } }

// New opens everything and starts nothing: the data directory is locked, the
// store migrated, the address bound (so that Addr is known) and not yet
// served. What it opened is closed by Run, or by New itself when it fails. It
// raises this process's limit of open files as far as it may.
func New(ctx context.Context, cfg config.Config, opts ...Option) (d *Daemon, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	o := options{now: time.Now, getenv: os.Getenv}
	for _, opt := range opts {
		opt(&o)
	}
	d = &Daemon{
		cfg: cfg, log: o.log, driver: o.driver, notify: takeNotifier(),
		metrics: telemetry.NewMetrics(telemetry.Version),
	}
	if d.log == nil {
		d.log = telemetry.NewLogger(os.Stderr, cfg.LogLevel, cfg.LogFormat)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
			d = nil
		}
	}()
	raiseOpenFiles(d.log)
	if err := d.open(ctx, o); err != nil {
		return d, err
	}
	return d, d.bind(ctx)
}

func (d *Daemon) open(ctx context.Context, o options) error {
	indexes, err := packageIndexes(d.cfg)
	if err != nil {
		return err
	}
	// Whoever sets an index wants sandboxes to reach it.
	allow := slices.Concat(d.cfg.EgressAllow, indexes.Hosts())
	operator, err := egress.ParseOperator(strings.Join(allow, ","), strings.Join(d.cfg.EgressDeny, ","))
	if err != nil {
		return err
	}
	upstream, err := egressUpstream(d.cfg)
	if err != nil {
		return err
	}
	archives, err := archiveStorage(d.cfg)
	if err != nil {
		return err
	}
	dirs, err := layout(d.cfg)
	if err != nil {
		return err
	}
	lock, err := lockDir(dirs.data)
	if err != nil {
		return err
	}
	d.closers = append(d.closers, lock)
	is, err := d.identify(dirs)
	if err != nil {
		return err
	}

	key, err := seal.OpenKey(dirs.sealKey)
	if err != nil {
		return err
	}
	if d.store, err = store.Open(ctx, store.Config{Path: dirs.database, URL: string(d.cfg.DatabaseURL), Seal: key, Tenant: func(ctx context.Context) string { return auth.From(ctx).Tenant }, Now: time.Now, Log: d.log}); err != nil {
		return err
	}
	d.closers = append(d.closers, d.store)
	d.journals, err = journal.Open(dirs.journals, journal.Limits{PerExec: int64(d.cfg.JournalPerExec), PerSandbox: int64(d.cfg.JournalPerBox)})
	if err != nil {
		return err
	}
	d.closers = append(d.closers, d.journals)
	images, err := image.Open(dirs.images, d.log)
	if err != nil {
		return err
	}
	images.LooksCount(d.cfg.ImageLooks)
	if old, err := images.Outdated(); err == nil {
		for _, name := range old {
			d.log.Warn("an image is older than its recipe", "image", name, "renew", "cubby image build "+name)
		}
	}
	pressure := func(frozen bool, free int64) { d.core.DiskPressure(frozen, free) }
	d.disks, err = local.New(local.Config{
		Dir: dirs.disks, Pool: d.cfg.DiskPool, Reserve: int64(d.cfg.DiskReserve), Overcommit: d.cfg.DiskOvercommit,
		PoolBytes: poolBytes(o.defaults, int64(d.cfg.JournalPerBox)), Plain: o.plainDisks, Log: d.log, Now: time.Now, OnPressure: pressure,
		OnFault: func(f storage.Fault, over bool) { d.core.DiskFault(f, over) },
	})
	if err != nil {
		return err
	}
	if d.driver == nil {
		if d.driver, err = oci.New(driverConfig(d.cfg, dirs, is.Cgroups, d.log)); err != nil {
			return err
		}
	}
	d.closers = append(d.closers, d.driver)
	imports, err := hostfiles.Allow(d.cfg.ImportDirs)
	if err != nil {
		return err
	}
	uploads, err := hostfiles.OpenUploads(dirs.threads, hostfiles.UploadLimits{Thread: int64(d.cfg.ThreadUploads), Tenant: int64(d.cfg.TenantUploads)}, d.disks.Admit)
	if err != nil {
		return err
	}
	d.memory = front.NewBudget(int64(d.cfg.MemoryBudget))
	limits, err := d.sandboxSettings(o)
	if err != nil {
		return err
	}
	d.core, err = core.New(core.Config{
		Store: d.store, Driver: d.driver, Disks: d.disks, Images: images, Journals: d.journals, Archives: archives,
		Egress: egress.Config{Operator: operator, Upstream: upstream, Log: d.log}, Log: d.log, Metrics: d.metrics, Now: o.now,
		Snapshots: snapshot.Bounds{Count: d.cfg.MaxSnapshots, Bytes: int64(d.cfg.SnapshotBytes)},
		Sandboxes: limits, History: history.Bounds{Age: d.cfg.HistoryRetention, Bytes: int64(d.cfg.HistoryOfTenant)},
		Code:    &cell.Caps{Stdout: d.cfg.MaxStdoutChars, Stderr: d.cfg.MaxStderrChars, Result: d.cfg.MaxResultChars, Traceback: d.cfg.MaxTracebackChars},
		Uploads: uploads, ImportDirs: imports, URLs: core.URLs{Download: d.downloadURL, Preview: d.previewURL}, Memory: d.memory,
		Packages: program.PackagesConfig{Indexes: indexes, Timeout: d.cfg.PackagesTimeout},
	})
	if err != nil {
		return err
	}
	if err := d.openAgent(dirs, o); err != nil {
		return err
	}
	if err := d.openBackups(dirs, key); err != nil {
		return err
	}
	d.metrics.Sandboxes(d.core.Sandboxes().Count)
	d.metrics.EgressTraffic(d.core.Egress().Traffic)
	d.metrics.Pools(d.poolStatus, d.core.Sandboxes().Pool().Claimed)
	if stocker, ok := driver.As[driver.Stocker](d.driver); ok {
		d.metrics.Sentries(stocker.Stock)
	}
	return nil
}

// sandboxSettings is what holds for all sandboxes.
func (d *Daemon) sandboxSettings(o options) (lifecycle.Settings, error) {
	reserve, sleepDisk, err := room(d.cfg)
	if err != nil {
		return lifecycle.Settings{}, err
	}
	return lifecycle.Settings{
		Authorities: authorities(os.Getenv), Defaults: d.defaults(o.defaults), IdleTimeout: d.idleTimeout(o.defaults),
		Caps: admission.Caps{
			All: d.cfg.MaxSandboxes, PerTenant: d.cfg.MaxPerTenant, OfTenant: d.cfg.MaxOfTenant, DiskOfTenant: int64(d.cfg.DiskOfTenant),
			Commands: d.cfg.MaxCommands, PerThread: d.cfg.MaxPerThread, InThreads: d.cfg.MaxInThreads,
		},
		Threads:    threads.Limits{IdleTimeout: &d.cfg.ThreadIdle, MaxLifetime: &d.cfg.ThreadLife, MaxActive: d.cfg.MaxThreads},
		Interfaces: interfaces(d.cfg), JournalBytes: int64(d.cfg.JournalPerBox), TenantDiskBytes: int64(d.cfg.TenantDisk),
		MemoryReserve: reserve, SleepDiskBytes: sleepDisk,
		Pool: poolKinds(d.cfg.Pool), DefaultPool: d.cfg.Pool.Auto, Containers: containers(d.cfg), TaskProgram: o.supervisor, Host: o.host,
	}, nil
}

// bind takes the address and prepares the doors.
func (d *Daemon) bind(ctx context.Context) error {
	tokens, err := auth.Parse(string(d.cfg.Tokens))
	if err != nil {
		return err
	}
	var authenticator *auth.Authenticator
	if d.cfg.Authenticated() {
		if authenticator, err = auth.New(tokens); err != nil {
			return err
		}
	}
	tlsConfig, err := serverTLS("tls-cert and tls-key", d.cfg.TLSCert, d.cfg.TLSKey)
	if err != nil {
		return err
	}
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	life, drain := context.WithCancel(base)
	d.cut, d.drain = cut, drain
	memory := d.memory
	spool := front.Spool{Dir: d.cfg.DataDir, Disk: front.NewBudget(int64(d.cfg.SpoolSpace)), Admit: d.disks.Admit, Memory: memory}
	api := httpapi.New(httpapi.Config{
		Core: d.core, Metrics: d.metrics, Log: d.log, Version: telemetry.Version,
		BodyLimit: int64(d.cfg.BodyLimit), Spool: spool, Life: life,
	}, append(apis(d.agent, d.cfg.AgentAtRoot), backups.Register(d.backups.Backup))...)
	d.refuse = api.Error
	guesses := new(front.Guesses)
	d.server = d.newServer(base, tlsConfig, front.CORS(d.cfg.CORSOrigins, front.Handler(front.Config{
		Auth: authenticator, SecretHeaders: []string{ecs.SecretHeader}, Origins: d.cfg.CORSOrigins, Access: access, Log: d.log, Metrics: d.metrics,
		Memory: memory, Guesses: guesses, Error: refusals(api),
	}, d.doors(api, spool, life))))
	if d.listener, err = d.listen(ctx, "listen", d.cfg.Listen); err != nil {
		return err
	}
	if d.cfg.GRPCListen != "" {
		if d.second, err = d.listen(ctx, "grpc-listen", d.cfg.GRPCListen); err != nil {
			return err
		}
	}
	return d.bindPreviews(ctx, base, life, authenticator, guesses)
}

// newServer returns a server whose requests end with base.
func (d *Daemon) newServer(base context.Context, tlsConfig *tls.Config, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		TLSConfig:         tlsConfig,
		ReadHeaderTimeout: 10 * time.Second, // bodies and answers are bounded by front, per read and write
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
		ConnState:         d.fresh.note,
		BaseContext:       func(net.Listener) context.Context { return base },
		Protocols:         protocols(),
		HTTP2:             http2(),
	}
}

func (d *Daemon) listen(ctx context.Context, key, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, errs.E(errs.Unavailable, "cannot listen on %s: %v", address, errors.Unwrap(err)).Because(err).
			Hint("another program may use the port; choose one with --%s", key)
	}
	d.closers = append(d.closers, closeListener{l})
	return newPatientListener(l, d.log), nil
}

// baseURL is where clients reach the API; without a setting, on this machine.
func (d *Daemon) baseURL() string {
	if d.cfg.APIBaseURL != "" {
		return d.cfg.APIBaseURL
	}
	scheme := "http://"
	if d.cfg.TLS() {
		scheme = "https://"
	}
	addr := d.Addr().String()
	if at, err := netip.ParseAddrPort(addr); err == nil && at.Addr().IsUnspecified() {
		addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(at.Port())))
	}
	return scheme + addr
}

// Addr is the address that is bound, with the real port.
func (d *Daemon) Addr() net.Addr { return d.listener.Addr() }

// SecondAddr is the address that grpc-listen bound; nil without one.
func (d *Daemon) SecondAddr() net.Addr {
	if d.second == nil {
		return nil
	}
	return d.second.Addr()
}

// close closes what New opened, the last one first.
func (d *Daemon) close() error {
	var err error
	for i := len(d.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, d.closers[i].Close())
	}
	d.closers = nil
	if d.cut != nil {
		d.cut()
	}
	return err
}

// closeListener forgives that the server closed the listener before.
type closeListener struct{ net.Listener }

func (l closeListener) Close() error {
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// egressUpstream is the proxy that makes sandboxes' connections; nil without
// one.
func egressUpstream(cfg config.Config) (*egress.Upstream, error) {
	switch {
	case cfg.EgressProxy == "" && cfg.EgressKey == "":
		return nil, nil //nolint:nilnil // none is a configuration
	case cfg.EgressProxy == "":
		return nil, errs.E(errs.Invalid, "egress-signing-key: there is no egress-proxy that it would be for")
	case cfg.EgressKey == "":
		return nil, errs.E(errs.Invalid, "egress-proxy: egress-signing-key is missing").Hint("both programs need the same key")
	}
	keys, err := egress.ParseKeys(string(cfg.EgressKey))
	if err != nil {
		return nil, err
	}
	return egress.NewUpstream(cfg.EgressProxy, keys)
}

// packageIndexes are where the operator has packages come from.
func packageIndexes(cfg config.Config) (packages.Indexes, error) {
	return packages.Indexes{PyPI: cfg.PipIndexURL, NPM: cfg.NPMRegistry, CRAN: cfg.CRANMirror}, errors.Join(
		packages.Validate("pip-index-url", cfg.PipIndexURL),
		packages.Validate("npm-registry", cfg.NPMRegistry),
		packages.Validate("cran-mirror", cfg.CRANMirror),
	)
}

// defaults completes what a create leaves open with what the operator set.
func (d *Daemon) defaults(s sandbox.Spec) sandbox.Spec {
	s.IdlePolicy = cmp.Or(s.IdlePolicy, d.cfg.IdlePolicy)
	s.MaxLifetime = cmp.Or(s.MaxLifetime, d.cfg.MaxLifetime)
	return s
}

// idleTimeout is the operator's, where 0 is for ever, unless a test has one.
func (d *Daemon) idleTimeout(s sandbox.Spec) *time.Duration {
	if s.IdleTimeout > 0 {
		return nil
	}
	return &d.cfg.IdleTimeout
}

// poolBytes is the size of the disks that a create without wishes takes.
func poolBytes(defaults sandbox.Spec, journalBytes int64) int64 {
	limits := defaults.Limits
	if limits.DiskBytes == 0 {
		limits = sandbox.DefaultSpec().Limits
	}
	return admission.DiskBytes(limits, journalBytes)
}
