package rpc_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

const page = "https://app.example.com"

// TestPagesOfOtherOrigins: a page got no answer to its first question, and so
// could not use gRPC-Web at all.
func TestPagesOfOtherOrigins(t *testing.T) {
	for _, tokens := range []string{"", "me:s3cret"} {
		d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) {
			c.CORSOrigins = []string{page}
			if tokens != "" {
				c.Tokens = config.Secret(tokens)
			}
		}})
		for _, tt := range []struct {
			origin, path string
			allowed      bool
		}{
			{page, "/sandbox.v1.SandboxService/ListSessions", true}, {page, "/v1/sandboxes", true}, {page, "/mcp", true},
			{"https://evil.example", "/sandbox.v1.SandboxService/ListSessions", false}, {"https://evil.example", "/v1/sandboxes", false},
			{"null", "/v1/sandboxes", false}, {"http://app.example.com", "/v1/sandboxes", false}, {page + ".evil.example", "/v1/sandboxes", false},
		} {
			before := ask(t, http.MethodOptions, d.URL+tt.path, http.Header{
				"Origin": {tt.origin}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"content-type,x-api-key,x-grpc-web"},
			})
			if got := before.Header.Get("Access-Control-Allow-Origin") == tt.origin; got != tt.allowed {
				t.Errorf("tokens %q: %s asks for %s: %s %v", tokens, tt.origin, tt.path, before.Status, before.Header)
			}
		}
		header := http.Header{"Origin": {page}, "Content-Type": {"application/json"}, "X-Api-Key": {"s3cret"}}
		res := ask(t, http.MethodPost, d.URL+"/sandbox.v1.SandboxService/ListSessions", header)
		if res.StatusCode != http.StatusOK || res.Header.Get("Access-Control-Allow-Origin") != page || !strings.Contains(res.Header.Get("Access-Control-Expose-Headers"), "Grpc-Status") {
			t.Errorf("tokens %q: the page's call = %s %v", tokens, res.Status, res.Header)
		}
		header.Del("X-Api-Key")
		if res := ask(t, http.MethodPost, d.URL+"/sandbox.v1.SandboxService/ListSessions", header); tokens != "" && res.StatusCode != http.StatusUnauthorized {
			t.Errorf("without a token: %s", res.Status)
		}
		header.Set("Origin", "https://evil.example")
		if res := ask(t, http.MethodPost, d.URL+"/sandbox.v1.SandboxService/ListSessions", header); res.StatusCode == http.StatusOK {
			t.Errorf("tokens %q: another page's call = %s", tokens, res.Status)
		}
	}
}

func ask(t *testing.T, method, url string, header http.Header) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return res
}

// frame is a message of gRPC-Web's.
func frame(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

// unpadded decodes base64 whose parts end with padding of their own.
func unpadded(t *testing.T, text []byte) []byte {
	t.Helper()
	var out []byte
	for len(text) > 0 {
		part := text[:min(4, len(text))]
		b, err := base64.StdEncoding.DecodeString(string(part))
		if err != nil {
			t.Fatalf("%q is not base64: %v", text, err)
		}
		out, text = append(out, b...), text[len(part):]
	}
	return out
}

// TestWebText: gRPC-Web as base64, which its browser clients speak when they
// stream.
func TestWebText(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.Tokens = "me:s3cret" }})
	call := func(method, token string, m proto.Message) (*http.Response, []byte) {
		t.Helper()
		body := base64.StdEncoding.EncodeToString(frame(t, m))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL+"/sandbox.v1.SandboxService/"+method, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/grpc-web-text"}, "X-Grpc-Web": {"1"}, "X-Api-Key": {token}}
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(res.Header.Get("Content-Type"), "application/grpc-web-text") {
			t.Fatalf("%s = %s %q of %s", method, res.Status, text, res.Header.Get("Content-Type"))
		}
		return res, unpadded(t, text)
	}
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	_, made := call("CreateSession", "s3cret", &sandboxv1.CreateSessionRequest{SessionId: proto.String("web")})
	if !bytes.Contains(made, []byte("web")) || !bytes.Contains(made, []byte("grpc-status: 0")) {
		t.Errorf("CreateSession = %q", made)
	}
	_, streamed := call("ExecStream", "s3cret", &sandboxv1.ExecStreamRequest{SessionId: "web", Command: "echo one; sleep 0.2; echo two"})
	if !bytes.Contains(streamed, []byte("one\n")) || !bytes.Contains(streamed, []byte("two\n")) || !bytes.Contains(streamed, []byte("grpc-status: 0")) {
		t.Errorf("ExecStream = %q", streamed)
	}
	res, refused := call("ListSessions", "wrong", &sandboxv1.ListSessionsRequest{})
	if status := res.Header.Get("Grpc-Status"); status != "16" && !bytes.Contains(refused, []byte("grpc-status: 16")) {
		t.Errorf("with a wrong token: %s %q", status, refused)
	}
}

// TestHealthIsListedAndWatched: reflection did not know the health service, and
// Watch was not there.
func TestHealthIsListedAndWatched(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	st := grpcreflect.NewClient(c, d.URL, connect.WithGRPC()).NewStream(t.Context())
	names, err := st.ListServices()
	if err != nil || len(names) != 2 {
		t.Errorf("services = %v, %v", names, err)
	}
	if files, err := st.FileContainingSymbol(grpchealth.HealthV1ServiceName); err != nil || len(files) == 0 {
		t.Errorf("the health service is described by %d files, %v", len(files), err)
	}
	_, _ = st.Close()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := grpchealth.NewClient(c, d.URL, connect.WithGRPC()).Watch(ctx, &grpchealth.CheckRequest{})
	if e := <-events; e.Err != nil || e.Response.Status != grpchealth.StatusServing {
		t.Fatalf("Watch = %+v", e)
	}
	// A service that is not here may come: the protocol wants the stream open.
	unknown := grpchealth.NewClient(c, d.URL, connect.WithGRPC()).Watch(ctx, &grpchealth.CheckRequest{Service: "other"})
	if e := <-unknown; e.Err != nil || int32(e.Response.Status) != int32(healthpb.HealthCheckResponse_SERVICE_UNKNOWN) {
		t.Fatalf("Watch of an unknown service = %+v", e)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- d.Stop() }()
	for service, events := range map[string]<-chan grpchealth.WatchEvent{"": events, "other": unknown} {
		var last grpchealth.WatchEvent
		for e := range events {
			if e.Err != nil {
				last.Err = e.Err
				break
			}
			last = e
		}
		var status *connect.Error
		if last.Response == nil || last.Response.Status != grpchealth.StatusNotServing || !errors.As(last.Err, &status) || status.Code() != connect.CodeUnavailable {
			t.Errorf("%q, when the daemon stops: %+v", service, last)
		}
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Errorf("Stop = %v", err)
	}
}
