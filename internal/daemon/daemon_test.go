package daemon_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/errs"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultClient.CloseIdleConnections()
		os.Exit(code)
	}))
}

// testConfig is one that does no harm to the machine of the test.
func testConfig(t *testing.T) config.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "cubby")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cfg := config.Default()
	cfg.Listen, cfg.DataDir, cfg.Pool = "127.0.0.1:0", dir, config.Pools{}
	return cfg
}

func assemble(t *testing.T, cfg config.Config) (*daemon.Daemon, error) {
	t.Helper()
	return daemon.New(context.Background(), cfg, daemon.WithDriver(drivertest.NewFake(t)), daemon.WithLog(slog.New(slog.DiscardHandler)), daemon.WithPlainDisks())
}

func TestNewRefuses(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	tests := []struct {
		name   string
		change func(*config.Config)
		want   errs.Kind
	}{
		{"listening beyond loopback without tokens", func(c *config.Config) { c.Listen = "0.0.0.0:0" }, errs.Invalid},
		{"tokens that are none", func(c *config.Config) { c.Tokens = "alice" }, errs.Invalid},
		{"an egress proxy without a key", func(c *config.Config) { c.EgressProxy = "http://127.0.0.1:1" }, errs.Invalid},
		{"a key without an egress proxy", func(c *config.Config) { c.EgressKey = "a key of some length" }, errs.Invalid},
		{"a short key", func(c *config.Config) { c.EgressProxy, c.EgressKey = "http://127.0.0.1:1", "short" }, errs.Invalid},
		{"an egress proxy that is no URL", func(c *config.Config) { c.EgressProxy, c.EgressKey = "127.0.0.1:1", "a key of some length" }, errs.Invalid},
		{"an egress entry that is no host", func(c *config.Config) { c.EgressAllow = []string{"http://x/"} }, errs.Invalid},
		{"a certificate that is not there", func(c *config.Config) { c.TLSCert, c.TLSKey = "/none.crt", "/none.key" }, errs.Invalid},
		{"a busy port", func(c *config.Config) { c.Listen = busy.Addr().String() }, errs.Unavailable},
		{"a data directory that is a file", func(c *config.Config) { c.DataDir = filepath.Join(c.DataDir, "file") }, errs.Unavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(t)
			if err := os.WriteFile(filepath.Join(cfg.DataDir, "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			good := cfg
			tt.change(&cfg)
			if _, err := assemble(t, cfg); !errors.Is(err, tt.want) {
				t.Fatalf("New = %v, want %v", err, tt.want)
			}
			// What it had opened is closed again: the directory is free.
			d, err := assemble(t, good)
			if err != nil {
				t.Fatalf("New after a refusal = %v", err)
			}
			runOnce(t, d)
		})
	}
}

// runOnce starts and stops.
func runOnce(t *testing.T, d *daemon.Daemon) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := d.Run(ctx); err != nil {
		t.Errorf("Run = %v, want a clean stop", err)
	}
}

func TestTwoDaemonsDoNotShareADirectory(t *testing.T) {
	cfg := testConfig(t)
	first, err := assemble(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := assemble(t, cfg); !errors.Is(err, errs.Conflict) {
		t.Errorf("a second daemon = %v, want conflict", err)
	}
	runOnce(t, first)
	second, err := assemble(t, cfg)
	if err != nil {
		t.Fatalf("after the first one stopped: %v", err)
	}
	runOnce(t, second)
}

func TestDirectoriesAreClosedToOthers(t *testing.T) {
	cfg := testConfig(t)
	if err := os.Chmod(cfg.DataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := assemble(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	runOnce(t, d)
	for _, name := range []string{"", "journals", "disks", "run/oci", "runtimes"} {
		info, err := os.Stat(filepath.Join(cfg.DataDir, name))
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q has mode %v, %v; want none for others", name, info.Mode(), err)
		}
	}
}

// TestStopEndsStreamsAndNotSandboxes: a follower would keep a server from
// draining for ever.
func TestStopEndsStreamsAndNotSandboxes(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	post := func(path, body string) {
		t.Helper()
		res, err := http.Post(d.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode >= 300 {
			text, _ := io.ReadAll(res.Body)
			t.Fatalf("POST %s = %d %s", path, res.StatusCode, text)
		}
	}
	post("/v1/sandboxes", `{"id":"a"}`)
	post("/v1/sandboxes/a/exec", `{"cmd":"echo one; sleep 60","wait":false}`)
	res, err := http.Get(d.URL + "/v1/sandboxes/a/execs/1/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), "one") {
	}
	waited := make(chan string, 1)
	go func() {
		res, err := http.Post(d.URL+"/v1/sandboxes/a/exec", "", strings.NewReader(`{"cmd":"touch waiting; sleep 60"}`))
		if err != nil {
			waited <- err.Error()
			return
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		waited <- res.Status + " " + string(text)
	}()
	for late := time.Now().Add(time.Minute); ; { // until that command runs
		res, err := http.Get(d.URL + "/v1/sandboxes/a/files/stat?path=waiting")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(late) {
			t.Fatal("the second command does not run")
		}
	}
	if err := d.Stop(); err != nil {
		t.Fatalf("Stop = %v", err)
	}
	// Whoever waits learns the number under which the next daemon has it.
	if got := <-waited; !strings.HasPrefix(got, "202 ") || !strings.Contains(got, `"seq":2`) {
		t.Errorf("the waiting request got %s, want 202 with the seq", got)
	}
	for lines.Scan() {
		if strings.Contains(lines.Text(), "event: exit") {
			t.Error("the stream ended with an exit, and the command goes on")
		}
	}
	again := daemontest.Start(t, daemontest.Options{Dir: d.Dir, Driver: d.Driver.Restart(t)})
	res, err = http.Get(again.URL + "/v1/sandboxes/a")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); !strings.Contains(string(text), `"status":"running"`) {
		t.Errorf("after a restart: %s", text)
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	first := writeCertificate(t, cert, key, 1)
	cfg := testConfig(t)
	cfg.TLSCert, cfg.TLSKey, cfg.Tokens = cert, key, "alice:s3cret"
	d, err := assemble(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	}()
	get := func(root *x509.Certificate) (*http.Response, error) {
		pool := x509.NewCertPool()
		pool.AddCert(root)
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
		defer tr.CloseIdleConnections()
		req, err := http.NewRequest("GET", "https://"+d.Addr().String()+"/v1/sandboxes", nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer s3cret")
		return (&http.Client{Transport: tr}).Do(req)
	}
	res, err := get(first)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 200 || res.ProtoMajor != 2 {
		t.Errorf("got %s over %s, want 200 over HTTP/2", res.Status, res.Proto)
	}
	// A renewed certificate is taken up without a restart.
	second := writeCertificate(t, cert, key, 2)
	if err := os.Chtimes(cert, time.Time{}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if res, err = get(second); err != nil {
		t.Fatalf("with the new certificate: %v", err)
	}
	res.Body.Close()
}

func writeCertificate(t *testing.T, certFile, keyFile string, serial int64) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "cubby test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestSystemdIsTold(t *testing.T) {
	dir, err := os.MkdirTemp("", "notify")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	d, err := assemble(t, testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := os.LookupEnv("NOTIFY_SOCKET"); ok {
		t.Errorf("NOTIFY_SOCKET=%s is still in the environment, where runc would find it", v)
	}
	runOnce(t, d)
	for _, want := range []string{"READY=1", "STOPPING=1"} {
		buf := make([]byte, 64)
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil || string(buf[:n]) != want {
			t.Errorf("systemd heard %q, %v, want %q", buf[:n], err, want)
		}
	}
}
