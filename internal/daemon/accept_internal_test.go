package daemon

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
)

// failing fails to accept with each of its errors in turn, then gives one connection,
// and then fails until it is closed.
type failing struct {
	errs  []error
	conn  net.Conn
	begun chan struct{} // closed when it fails for good
	once  sync.Once
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, err
	}
	if conn := f.conn; conn != nil {
		f.conn = nil
		return conn, nil
	}
	f.once.Do(func() { close(f.begun) })
	return nil, syscall.ENOBUFS
}

func (*failing) Addr() net.Addr { return &net.TCPAddr{} }
func (*failing) Close() error   { return nil }

// TestAcceptGoesOnAfterAnyError: an error of one connection does not end the doors, and
// with them the daemon.
func TestAcceptGoesOnAfterAnyError(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	f := &failing{conn: here, begun: make(chan struct{})}
	for _, no := range []syscall.Errno{syscall.EMFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EPROTO, syscall.ENETDOWN, syscall.EPERM, syscall.EHOSTUNREACH} {
		f.errs = append(f.errs, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", no)})
	}
	l := newPatientListener(f, slog.New(slog.DiscardHandler))
	conn, err := l.Accept()
	if err != nil {
		t.Fatalf("Accept = %v", err)
	}
	conn.Close()

	ended := make(chan error)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	<-f.begun
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept of a closed listener = %v", err)
	}
}
