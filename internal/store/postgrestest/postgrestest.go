// Package postgrestest runs a real PostgreSQL server for tests: a process of
// its own, under a user without rights, on a UNIX socket, with its data in a
// temporary directory. It uses the programs of the Debian package postgresql
// and neither starts nor touches the machine's own server. Nothing stays when
// the tests are over, and no process when they are killed.
package postgrestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// startLimit is what a server may take to start on a busy machine.
const startLimit = 2 * time.Minute

// Server is a running PostgreSQL. Its databases survive [Server.Kill].
type Server struct {
	dir       string
	programs  string
	cred      *syscall.Credential // nil: the tests' own user
	databases atomic.Int64

	stop func() // kills the process and waits; nil when none runs
}

var shared struct {
	mu     sync.Mutex
	users  int     // tests that use server, and keepers; guarded by mu
	server *Server // nil before its first use; guarded by mu
}

// New returns the URL of a fresh database on a server that all tests of this
// process share while one uses it.
func New(t testing.TB) string {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		s, err := start()
		if err != nil {
			t.Fatal(err)
		}
		shared.server = s
	}
	shared.users++
	t.Cleanup(func() {
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	return shared.server.NewDatabase(t)
}

// Kept are all tests of a package, which share the server from its first use to
// their end: to make one takes longer than most tests.
type Kept struct{ *testing.M }

// Run is that of [testing.M].
func (k Kept) Run() int {
	shared.mu.Lock()
	shared.users++
	shared.mu.Unlock()
	code := k.M.Run()
	if err := release(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

func release() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.users--
	if shared.users > 0 || shared.server == nil {
		return nil
	}
	s := shared.server
	shared.server = nil
	return s.remove()
}

// Start returns a server of the test's own, which it may kill.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.remove(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// NewDatabase makes an empty database and returns its URL.
func (s *Server) NewDatabase(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	name := fmt.Sprintf("test%d", s.databases.Add(1))
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return s.url(name)
}

func (s *Server) url(database string) string {
	q := url.Values{"host": {s.dir}, "user": {"postgres"}, "sslmode": {"disable"}}
	return (&url.URL{Scheme: "postgres", Path: "/" + database, RawQuery: q.Encode()}).String()
}

// Kill ends the server as a crash does.
func (s *Server) Kill() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// Restart starts a server that was killed, and returns when it answers.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) remove() error {
	s.Kill()
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove the database server: %w", err)
	}
	return nil
}

func start() (_ *Server, err error) {
	s := &Server{}
	if s.programs, err = programs(); err != nil {
		return nil, err
	}
	if s.cred, err = unprivileged(); err != nil {
		return nil, err
	}
	// Not below a test's directory: the paths of sockets are short.
	if s.dir, err = os.MkdirTemp("", "pg"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(s.dir)
		}
	}()
	if s.cred != nil {
		if err := os.Chown(s.dir, int(s.cred.Uid), int(s.cred.Gid)); err != nil {
			return nil, err
		}
	}
	initdb := s.command("initdb", "--pgdata", s.data(), "--username", "postgres", "--auth", "trust",
		"--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return s, s.run()
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.programs, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "TZ=UTC"}
	// SIGQUIT ends a server with all its processes at once.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Pdeathsig: syscall.SIGQUIT}
	return cmd
}

// run starts the server and waits until it answers.
func (s *Server) run() error {
	// A killed server cannot take its pid file away, and would not start
	// beside one whose pid has been given to another process.
	if err := os.Remove(filepath.Join(s.data(), "postmaster.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var log bytes.Buffer
	// What a test kills are processes and not the machine, so nothing has to
	// reach the disk.
	cmd := s.command("postgres", "-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off",
		"-c", "shared_buffers=16MB", "-c", "max_connections=200", "-c", "logging_collector=off")
	cmd.Stdout, cmd.Stderr = &log, &log
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The signal of a parent's death is that of the parent's thread.
		runtime.LockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.stop = func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // it may have ended by itself
		<-ended
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.url("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ended:
			s.stop = nil
			return fmt.Errorf("the database server ended: %s", log.String())
		case <-ctx.Done():
			s.Kill()
			return fmt.Errorf("the database server does not answer: %w\n%s", err, log.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// programs finds the newest server that is installed.
func programs() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New("no PostgreSQL server is installed: run scripts/setup.sh test")
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 is the oldest
		return n
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}

// unprivileged returns who the server runs as: PostgreSQL refuses root.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(errUID, errGID); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("this machine has neither the user postgres nor nobody to run a database server as")
}
