package cli

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	// dialTimeout is how long a daemon may take to be noticed.
	dialTimeout = 5 * time.Second
	// rivalTimeout is how long another command may take to start the daemon
	// that this one wanted to start.
	rivalTimeout = 20 * time.Second
)

// ownDaemon finds the daemon for a command, and starts one in this process
// where none answers and this user may.
type ownDaemon struct {
	app *app

	mu    sync.Mutex
	url   string // of the one in this process; guarded by mu
	stop  context.CancelFunc
	ended chan error // gives one value
}

// find returns where a daemon answers. An address of another machine is
// returned as it is.
func (o *ownDaemon) find(ctx context.Context) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.url != "" {
		return o.url, nil
	}
	base, err := url.Parse(o.base())
	if err != nil || base.Host == "" {
		return "", errs.E(errs.Invalid, "%q is not the URL of a daemon", o.base()).Hint("write it as http://host:port")
	}
	if !thisMachine(base.Hostname()) || answers(ctx, base) {
		return base.String(), nil
	}
	if os.Geteuid() != 0 {
		return "", errs.E(errs.Unavailable, "no daemon answers at %s", base).
			Hint("start one with `sudo cubby serve`, or set CUBBY_URL and CUBBY_TOKEN to one that runs; as root this command starts one of its own")
	}
	return o.start(ctx, base)
}

// base is where the daemon is looked for: where the user says, or where one
// with the user's settings would listen.
func (o *ownDaemon) base() string {
	if listen := o.app.getenv("CUBBY_LISTEN"); listen != "" && o.app.url == "" && o.app.getenv("CUBBY_URL") == "" {
		return "http://" + listen
	}
	return o.app.client().URL()
}

func (o *ownDaemon) start(ctx context.Context, base *url.URL) (string, error) {
	var args []string
	if o.app.getenv("CUBBY_ON_SHUTDOWN") == "" {
		args = append(args, "--on-shutdown="+string(config.Destroy)) // nobody would look after them
	}
	cfg, err := config.Load(args, o.app.Environ)
	if err != nil {
		return "", err
	}
	d, err := daemon.New(ctx, cfg, daemon.WithLog(telemetry.NewLogger(o.app.Stderr, cfg.LogLevel, cfg.LogFormat)))
	if errors.Is(err, errs.Conflict) || errors.Is(err, errs.Unavailable) {
		// Another command may be doing the same.
		waiting, cancel := context.WithTimeout(ctx, rivalTimeout)
		defer cancel()
		for waiting.Err() == nil {
			if answers(waiting, base) {
				return base.String(), nil
			}
			select {
			case <-waiting.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	if err != nil {
		return "", err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	o.stop, o.ended = stop, make(chan error, 1)
	go func() { o.ended <- d.Run(running) }()
	o.url = "http://" + local(d.Addr())
	if cfg.TLS() {
		o.url = "https://" + local(d.Addr())
	}
	return o.url, nil
}

// close ends the daemon of this process, if there is one.
func (o *ownDaemon) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stop == nil {
		return nil
	}
	o.stop()
	if err := <-o.ended; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// answers reports whether something takes connections at base.
func answers(ctx context.Context, base *url.URL) bool {
	port := base.Port()
	if port == "" {
		port = base.Scheme
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", net.JoinHostPort(base.Hostname(), port))
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// thisMachine reports whether a host's name is this machine's own.
func thisMachine(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// local is an address that this machine reaches itself under.
func local(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: tcp.Port}).String()
}
