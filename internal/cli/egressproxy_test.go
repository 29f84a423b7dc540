package cli

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/egress"
)

func TestEgressProxyAsksForTokens(t *testing.T) {
	log, stderr := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	a := &app{Env: Env{Stdout: io.Discard, Stderr: stderr, Environ: []string{"CUBBY_EGRESS_SIGNING_KEY=a key of some length"}}}
	go func() {
		done <- egressProxy{listen: "127.0.0.1:0", metrics: "127.0.0.1:0"}.run(ctx, a)
		stderr.Close()
	}()
	lines := bufio.NewReader(log)
	says := func(of string) string {
		t.Helper()
		line, err := lines.ReadString('\n')
		_, rest, ok := strings.Cut(line, of)
		if err != nil || !ok {
			t.Fatalf("the log says %q, %v, want %q", line, err, of)
		}
		return strings.TrimSpace(rest)
	}
	address, _, _ := strings.Cut(says("msg=serving listen="), " ")
	metrics := says(`msg="serving metrics" listen=`)
	// The log is a pipe: it is read while the proxy writes.
	refusal := make(chan string, 1)
	go func() {
		line, _ := lines.ReadString('\n')
		refusal <- line
		_, _ = io.Copy(io.Discard, lines)
	}()
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: address})}
	res, err := (&http.Client{Transport: transport}).Get("http://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	transport.CloseIdleConnections()
	if res.StatusCode != http.StatusProxyAuthRequired {
		t.Errorf("without a token = %d, want 407", res.StatusCode)
	}
	if line := <-refusal; !strings.Contains(line, "msg=denied") || !strings.Contains(line, "host=example.com port=80 rule=token") {
		t.Errorf("the log says %q of it", line)
	}
	if res, err = http.Get("http://" + metrics + "/metrics"); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	res.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	for _, want := range []string{`cubby_egress_decisions_total{decision="denied",rule="token"} 1`, "cubby_egress_connections 0", `cubby_egress_bytes_total{direction="sent"} 0`} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the metrics do not have %q: %v", want, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run = %v", err)
	}
}

func TestEgressProxyRefuses(t *testing.T) {
	for name, p := range map[string]egressProxy{
		"no key":       {},
		"a short key":  {key: "short"},
		"a bad host":   {key: "a key of some length", allow: "http://x/"},
		"half of TLS":  {key: "a key of some length", cert: "x"},
		"no address":   {key: "a key of some length", listen: "nowhere"},
		"no such file": {key: "a key of some length", cert: "/nonexistent", certKey: "/nonexistent"},
	} {
		err := p.run(t.Context(), &app{Env: Env{Stdout: io.Discard, Stderr: io.Discard}})
		if err == nil || strings.Contains(err.Error(), "a key of some length") {
			t.Errorf("%s: run = %v", name, err)
		}
	}
	if _, err := egress.ParseKeys("a key of some length"); err != nil {
		t.Error(err)
	}
}
