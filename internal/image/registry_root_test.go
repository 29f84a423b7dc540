//go:build root

package image

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// registryProcess runs the distribution project's registry, a program that
// shares no code with the client, and returns its address.
func registryProcess(t *testing.T) string {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yml")
	config := fmt.Sprintf("version: 0.1\nlog: {level: warn}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: %q}\n", dir, addr)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("docker-registry", "serve", file)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatalf("start docker-registry: %v (scripts/setup.sh test installs it)", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("the registry says: %s", out.String())
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	for deadline := time.Now().Add(time.Minute); ; {
		if res, err := client.Get("http://" + addr + "/v2/"); err == nil {
			res.Body.Close()
			return addr
		}
		select {
		case <-ended:
			t.Fatal("docker-registry ended at once")
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("docker-registry does not answer")
		}
	}
}

func TestPullFromARegistryProcess(t *testing.T) {
	host := registryProcess(t)
	t.Cleanup(closeIdleConnections)
	push(t, host+"/acme/tool:1.2", testImage(t))
	s := openStore(t, t.TempDir())
	got, err := s.Pull(t.Context(), host+"/acme/tool:1.2", "tool", nil)
	if err != nil {
		t.Fatalf("Pull = %v", err)
	}
	tree := listing(t, got.Dir)
	for path, want := range map[string]string{"bin/sh": "sh", "etc/kept": "upper", "app": "app", "etc/gone": ""} {
		if tree[path] != want {
			t.Errorf("%s = %q, want %q", path, tree[path], want)
		}
	}
	if _, err := s.Pull(t.Context(), host+"/acme/tool:9", "nine", nil); err == nil {
		t.Error("Pull of a tag that is not there succeeded")
	}
}
