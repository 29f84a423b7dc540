package daemon

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/cubbyhq/cubby/internal/telemetry"
)

// patientListener goes on accepting connections whatever a connection fails with. An
// http.Server ends at the first error that is not known to be temporary, and the
// kernel has others that pass: want of memory, or the end of a network interface.
type patientListener struct {
	net.Listener
	log    *slog.Logger
	closed chan struct{}
	once   sync.Once // of closed
}

func newPatientListener(l net.Listener, log *slog.Logger) *patientListener {
	return &patientListener{Listener: l, log: log, closed: make(chan struct{})}
}

// Accept returns the next connection; its error is net.ErrClosed alone.
func (l *patientListener) Accept() (net.Conn, error) {
	pauses := &backoff.ExponentialBackOff{InitialInterval: 5 * time.Millisecond, Multiplier: 2, MaxInterval: time.Second}
	for {
		conn, err := l.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		l.log.Warn("a connection could not be accepted; it is tried again", "listen", l.Addr().String(), telemetry.KeyErr, err)
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
}

// Close ends Accept.
func (l *patientListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
