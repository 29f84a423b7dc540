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
		done <- egressProxy{listen: "127.0.0.1:0"}.run(ctx, a)
		stderr.Close()
	}()
	line, err := bufio.NewReader(log).ReadString('\n')
	_, address, ok := strings.Cut(line, "listen=")
	if err != nil || !ok {
		t.Fatalf("the log begins with %q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	address, _, _ = strings.Cut(address, " ")
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
