// Package localdaemon finds the daemon of this machine for a command that needs one,
// and runs one in the command's own process where none answers and the user is root.
// A daemon of another machine is taken as it is named.
package localdaemon

import (
	"context"
	"errors"
	"io"
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

// Daemon finds the daemon for a command, and starts one in this process where
// none answers and this user may.
type Daemon struct {
	// URL is where one is looked for.
	URL string
	// Flags and Environ are the settings of one that is started.
	Flags, Environ []string
	Log            io.Writer // of one that is started
	// Own starts one whether or not another answers at the URL, which is taken
	// only where it has the data directory of the settings.
	Own bool

	mu    sync.Mutex
	own   string // URL of the one in this process; guarded by mu
	stop  context.CancelFunc
	ended chan error // gives one value
}

// Find returns where a daemon answers. An address of another machine is
// returned as it is.
func (d *Daemon) Find(ctx context.Context) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.own != "" {
		return d.own, nil
	}
	base, err := parse(d.URL)
	if err != nil {
		return "", err
	}
	if !d.Own && (!thisMachine(base.Hostname()) || answers(ctx, base)) {
		return base.String(), nil
	}
	if os.Geteuid() != 0 {
		return "", errs.E(errs.Unavailable, "no daemon answers at %s", base).
			Hint("start one with `sudo cubby serve`, or set CUBBY_URL and CUBBY_TOKEN to one that runs; as root this command starts one of its own")
	}
	return d.start(ctx, base)
}

// Answering returns the URL of a daemon as Find does, and "" where none answers on this
// machine.
func Answering(ctx context.Context, daemon string) (string, error) {
	base, err := parse(daemon)
	if err != nil || thisMachine(base.Hostname()) && !answers(ctx, base) {
		return "", err
	}
	return base.String(), nil
}

func parse(daemon string) (*url.URL, error) {
	base, err := url.Parse(daemon)
	if err != nil || base.Host == "" {
		return nil, errs.E(errs.Invalid, "%q is not the URL of a daemon", daemon).Hint("write it as http://host:port")
	}
	return base, nil
}

func (d *Daemon) start(ctx context.Context, base *url.URL) (string, error) {
	cfg, err := config.Load(d.Flags, d.Environ)
	if err != nil {
		return "", err
	}
	own, err := daemon.New(ctx, cfg, daemon.WithLog(telemetry.NewLogger(d.Log, cfg.LogLevel, cfg.LogFormat)))
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
	d.stop, d.ended = stop, make(chan error, 1)
	go func() { d.ended <- own.Run(running) }()
	d.own = "http://" + local(own.Addr())
	if cfg.TLS() {
		d.own = "https://" + local(own.Addr())
	}
	return d.own, nil
}

// Close ends the daemon of this process, if there is one.
func (d *Daemon) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stop == nil {
		return nil
	}
	d.stop()
	if err := <-d.ended; !errors.Is(err, context.Canceled) {
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
