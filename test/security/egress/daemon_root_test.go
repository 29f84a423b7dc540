//go:build root

package egress_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// daemon is the program that users run, on the world's host.
type daemon struct {
	t         *testing.T
	dir       string
	api, grpc string // host:port
	client    *client.Client
}

func startDaemon(t *testing.T, flags ...string) *daemon {
	t.Helper()
	// Nothing else is in this network namespace.
	d := &daemon{t: t, api: "127.0.0.1:9090", grpc: "127.0.0.1:9091"}
	d.client = client.New("http://" + d.api)
	program := harness.New(t, harness.Options{
		Listen: d.api, Flags: append([]string{"--grpc-listen", d.grpc}, flags...),
		// Its processes see nothing of the world that the test marks as its own.
		Env: []string{insideVariable + "="},
	})
	d.dir = program.Dir
	program.MustStart()
	program.WaitReady()
	return d
}

// channels finds the channels' sockets of all sandboxes on the host.
func (d *daemon) channels() []string {
	d.t.Helper()
	var found []string
	err := filepath.WalkDir(filepath.Join(d.dir, "run"), func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type()&os.ModeSocket != 0 && e.Name() == "host.sock" {
			found = append(found, path)
		}
		return nil // directories come and go
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return found
}
