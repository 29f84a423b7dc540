// Package gittest serves git repositories over HTTP for tests: git's own
// http-backend behind a server on loopback, with or without credentials.
package gittest

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Options change a [Server].
type Options struct {
	Address            string // to listen on; default 127.0.0.1:0
	Username, Password string // when set, every request needs them
	TLS                *tls.Config
	// OnRequest, when not nil, is called before a request with the right
	// credentials is served, which waits for it.
	OnRequest func()
}

// Server serves bare repositories to clone from and push to.
type Server struct {
	URL string // without a slash at its end
	dir string

	mu    sync.Mutex
	users []string // of every request that had credentials, in order
}

// New starts a server that ends with the test.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	s := &Server{dir: t.TempDir()}
	core, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"),
		Env: []string{
			"GIT_PROJECT_ROOT=" + s.dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=tester", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + s.dir,
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		},
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		if ok {
			s.mu.Lock()
			s.users = append(s.users, user)
			s.mu.Unlock()
		}
		if o.Username+o.Password != "" && (user != o.Username || password != o.Password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "credentials are needed", http.StatusUnauthorized)
			return
		}
		if o.OnRequest != nil {
			o.OnRequest()
		}
		// The backend must not see how its caller was authenticated.
		r.Header.Del("Authorization")
		backend.ServeHTTP(w, r)
	}))
	if o.Address != "" {
		srv.Listener.Close()
		if srv.Listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp", o.Address); err != nil {
			t.Fatal(err)
		}
	}
	if o.TLS != nil {
		srv.TLS = o.TLS
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	s.URL = srv.URL
	return s
}

// Users returns the user names that requests came with.
func (s *Server) Users() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.users...)
}

// Repo makes a bare repository with one commit of a file README on main, and
// returns its URL.
func (s *Server) Repo(t testing.TB, name string) string {
	t.Helper()
	bare := filepath.Join(s.dir, name)
	work := t.TempDir()
	s.git(t, s.dir, "init", "--bare", "--initial-branch=main", bare)
	s.git(t, bare, "config", "http.receivepack", "true")
	s.git(t, work, "init", "--initial-branch=main")
	if err := os.WriteFile(filepath.Join(work, "README"), []byte("first line\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.git(t, work, "add", "README")
	s.git(t, work, "commit", "--message=first commit")
	s.git(t, work, "push", bare, "main")
	return s.URL + "/" + name
}

// Git runs git in the bare repository and returns what it prints.
func (s *Server) Git(t testing.TB, name string, args ...string) string {
	t.Helper()
	return s.git(t, filepath.Join(s.dir, name), args...)
}

func (s *Server) git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Server", "GIT_AUTHOR_EMAIL=server@example.com", "GIT_COMMITTER_NAME=Server", "GIT_COMMITTER_EMAIL=server@example.com",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
