package guest_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/channel"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/guestd"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const secret = "a-secret-of-the-test"

// patience is how long a test waits for something that must happen.
const patience = time.Minute

func TestMain(m *testing.M) {
	code := m.Run()
	if dir := agentDir; dir != "" {
		os.RemoveAll(dir)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

var agentDir string

// agentBinary builds cubby-init once for all tests, as make does and out of the
// same cache.
var agentBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "cubby-guest-test")
	if err != nil {
		return "", err
	}
	agentDir = dir
	path := filepath.Join(dir, "cubby-init")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "github.com/cubbyhq/cubby/cmd/cubby-init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

func mustAgentBinary(t testing.TB) string {
	t.Helper()
	path, err := agentBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// host is one sandbox as a driver would hold it: a channel and a client.
type host struct {
	*guest.Client
	channel *channel.Listener
	path    string
}

func listen(t testing.TB, path string) *channel.Listener {
	t.Helper()
	l, err := channel.Listen(path, secret, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// start runs an agent in this process, changed by change.
func start(t testing.TB, change func(*guestd.Config)) host {
	t.Helper()
	h := host{path: filepath.Join(t.TempDir(), "host.sock")}
	h.channel = listen(t, h.path)
	cfg := guestd.Config{
		Boot:    &guestv1.Boot{Secret: secret, Socket: h.path, Env: []string{"PATH=" + os.Getenv("PATH")}},
		Version: "test",
		OneUser: true,
	}
	if change != nil {
		change(&cfg)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	s := guestd.New(cfg)
	go func() { ended <- s.Serve(ctx) }()
	h.Client = guest.New(h.channel.Dial)
	t.Cleanup(func() {
		stop()
		h.Close()
		if err := <-ended; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	return h
}

// supervised makes commands run below supervisors, as in a container.
func supervised(t testing.TB) func(*guestd.Config) {
	path := mustAgentBinary(t)
	return func(c *guestd.Config) { c.Supervisor = []string{path, "supervise"} }
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// result is a whole stream.
type result struct {
	stdout, stderr []byte
	rich           []byte
	started        *guest.Started
	exit           *guest.Exit
	next           int64
}

// follow reads a stream to its end, acknowledging as it goes.
func (h host) follow(t testing.TB, ctx context.Context, uid sandbox.UID, start *guest.Start, after int64) result {
	t.Helper()
	s, err := h.Exec(ctx, uid, start, after)
	if err != nil {
		t.Fatalf("Exec = %v", err)
	}
	defer s.Close()
	r := result{next: after}
	for acked := after; ; {
		m, err := s.Next()
		if errors.Is(err, io.EOF) {
			return r
		}
		if err != nil {
			t.Fatalf("Next at offset %d = %v", r.next, err)
		}
		r.take(m)
		if r.next-acked > 256<<10 {
			acked = r.next
			if err := h.Ack(ctx, uid, acked); err != nil {
				t.Fatalf("Ack(%d) = %v", acked, err)
			}
		}
	}
}

func (r *result) take(m guest.ExecMessage) {
	switch {
	case m.Started != nil:
		r.started = m.Started
	case m.Output != nil:
		r.next += int64(len(m.Output.Data))
		switch m.Output.Stream {
		case sandbox.Stderr:
			r.stderr = append(r.stderr, m.Output.Data...)
		case sandbox.Rich:
			r.rich = append(r.rich, m.Output.Data...)
		default:
			r.stdout = append(r.stdout, m.Output.Data...)
		}
	case m.Exit != nil:
		r.exit = m.Exit
	}
}

func (h host) run(t testing.TB, spec sandbox.ExecSpec) result {
	t.Helper()
	return h.follow(t, testContext(t), sandbox.NewUID(), &guest.Start{ExecSpec: spec}, 0)
}

func shell(script string) sandbox.ExecSpec { return sandbox.ExecSpec{Shell: script, Cwd: "/"} }

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
