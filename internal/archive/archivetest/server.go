//go:build root

package archivetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// The server's keys and its one bucket.
const (
	AccessKey = "test-access-key"
	SecretKey = "test-secret-key-0123456789"
	Bucket    = "boxes"
)

// Server is an S3 server.
type Server struct {
	URL string // http://127.0.0.1:port
	Dir string // its objects, as files below Bucket
	cmd *exec.Cmd
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	program := build(t)
	s := &Server{Dir: filepath.Join(t.TempDir(), "objects")}
	sidecar := filepath.Join(t.TempDir(), "sidecar")
	for _, dir := range []string{s.Dir, sidecar} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	for range 20 {
		// Below the range that the kernel gives to whoever asks for any port.
		address := fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(10000))
		if l, err := net.Listen("tcp", address); err != nil {
			continue // taken
		} else if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		log.Reset()
		s.URL = "http://" + address
		s.cmd = exec.Command(program, "--access", AccessKey, "--secret", SecretKey, "--port", address, "--quiet",
			"posix", "--sidecar", sidecar, s.Dir)
		s.cmd.Dir = s.Dir
		s.cmd.Stdout, s.cmd.Stderr = &log, &log
		if err := s.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.cmd.Wait() // the test kills it
		}()
		if answers(t, s.URL, ended) {
			t.Cleanup(func() {
				_ = s.cmd.Process.Kill() // it may have been killed before
				<-ended
			})
			s.makeBucket(t)
			return s
		}
	}
	t.Fatalf("the S3 server does not start: %s", log.String())
	return nil
}

// Kill ends the server, as a storage that is away.
func (s *Server) Kill() error { return s.cmd.Process.Kill() }

// build makes the program once for all packages: go leaves alone what is there
// and up to date.
func build(t testing.TB) string {
	t.Helper()
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(string(bytes.TrimSpace(module)))
	program := filepath.Join(root, ".cache", "tools", "versitygw")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	// Another package's test may be writing or starting it.
	lock := flock.New(program + ".lock")
	if err := lock.Lock(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Unlock() }() // the process's end gives it back too
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-modfile=tools/s3/go.mod", "-o", program, "github.com/versity/versitygw/cmd/versitygw")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build versitygw: %v\n%s", err, out)
	}
	return program
}

func answers(t testing.TB, url string, ended <-chan struct{}) bool {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		select {
		case <-ended:
			return false // the port was taken, most likely
		case <-time.After(20 * time.Millisecond):
		}
		res, err := http.Get(url)
		if err == nil {
			res.Body.Close()
			return true
		}
		var refused *net.OpError
		if !errors.As(err, &refused) {
			return false
		}
	}
	return false
}

func (s *Server) makeBucket(t testing.TB) {
	t.Helper()
	c, err := minio.New(s.URL[len("http://"):], &minio.Options{Creds: credentials.NewStaticV4(AccessKey, SecretKey, "")})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.MakeBucket(context.Background(), Bucket, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
}
