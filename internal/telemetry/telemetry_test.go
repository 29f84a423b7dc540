package telemetry_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/telemetry"
)

func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(rec.Body)
	if err != nil || rec.Code != 200 {
		t.Fatalf("scrape = %d, %v: %s", rec.Code, err, body)
	}
	return string(body)
}

func TestMetrics(t *testing.T) {
	m := telemetry.NewMetrics("v1.2.3")
	m.Request("GET", "/v1/sandboxes/{id}", 404, time.Millisecond)
	m.Create("gvisor", "ok", time.Second)
	m.Create("container", "exhausted", time.Second)
	m.Exec("oom", time.Second)
	m.Egress(false, "allowlist")
	m.EgressEnded("connect", "", 2*time.Second)
	m.EgressEnded("http", "cut", time.Second)
	m.EgressUnlisted()
	m.EgressTraffic(func() (int, int64, int64) { return 7, 11, 22 })
	m.DiskPressure(true, 42)
	m.Sandboxes(func(context.Context) (map[string]int, error) {
		return map[string]int{"running": 3, "stopped": 1}, nil
	})
	got := scrape(t, m)
	for _, want := range []string{
		`cubby_http_requests_total{method="GET",route="/v1/sandboxes/{id}",status="404"} 1`,
		`cubby_sandbox_creates_total{isolation="gvisor",result="ok"} 1`,
		`cubby_sandbox_creates_total{isolation="container",result="exhausted"} 1`,
		`cubby_sandbox_create_seconds_count{isolation="gvisor"} 1`,
		`cubby_execs_total{reason="oom"} 1`,
		`cubby_egress_decisions_total{decision="denied",rule="allowlist"} 1`,
		`cubby_egress_bytes_total{direction="sent"} 11`, `cubby_egress_bytes_total{direction="received"} 22`,
		`cubby_egress_connection_seconds_sum{end="closed",protocol="connect"} 2`, `cubby_egress_connection_seconds_count{end="cut",protocol="http"} 1`,
		`cubby_egress_unlisted_total 1`, `cubby_egress_connections 7`,
		`cubby_disk_frozen 1`, `cubby_disk_free_bytes 42`,
		`cubby_sandboxes{state="running"} 3`, `cubby_sandboxes{state="stopped"} 1`,
		`cubby_build_info{version="v1.2.3"} 1`, `go_goroutines`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if strings.Contains(got, `cubby_sandbox_create_seconds_count{isolation="container"}`) {
		t.Error("a failed create is in the histogram of successful ones")
	}
}

func TestUnknownStateIsNotZero(t *testing.T) {
	m := telemetry.NewMetrics("v0")
	m.Sandboxes(func(context.Context) (map[string]int, error) { return nil, errors.New("down") })
	if got := scrape(t, m); strings.Contains(got, "cubby_sandboxes{") || !strings.Contains(got, "cubby_disk_frozen 0") {
		t.Errorf("a failing count must take away its own gauge and no other, got:\n%s", got)
	}
}

func TestNilMetricsRecordNothing(t *testing.T) {
	var m *telemetry.Metrics
	m.Request("GET", "/", 200, 0)
	m.Create("gvisor", "ok", 0)
	m.Exec("exited", 0)
	m.Egress(true, "open")
	m.EgressEnded("socks", "failed", time.Second)
	m.EgressUnlisted()
	m.DiskPressure(false, 0)
}

func TestLogger(t *testing.T) {
	tests := []struct{ format, want string }{
		{"text", "level=WARN msg=hello err=broken"},
		{"json", `"level":"WARN","msg":"hello","err":"broken"`},
	}
	for _, tt := range tests {
		var out strings.Builder
		log := telemetry.NewLogger(&out, slog.LevelWarn, tt.format)
		log.Info("not this")
		log.Warn("hello", telemetry.KeyErr, errors.New("broken"))
		if got := out.String(); !strings.Contains(got, tt.want) || strings.Contains(got, "not this") {
			t.Errorf("%s: got %q, want %q", tt.format, got, tt.want)
		}
	}
}

func TestSentriesAreReadAsTheyAreWritten(t *testing.T) {
	m := telemetry.NewMetrics("v")
	m.Sentries(func() (ready, wanted int) { return 2, 3 })
	if ready, wanted := telemetry.ReadSentries(scrape(t, m)); ready != 2 || wanted != 3 {
		t.Errorf("ReadSentries = %d, %d, want 2, 3", ready, wanted)
	}
	if ready, wanted := telemetry.ReadSentries("cubby_sentries_ready 99999999999999999999\n"); ready != 0 || wanted != 0 {
		t.Errorf("ReadSentries = %d, %d of what no daemon writes", ready, wanted)
	}
}

func TestPoolsAreReadAsTheyAreWritten(t *testing.T) {
	m := telemetry.NewMetrics("v")
	want := []telemetry.Pool{
		{Image: "base", Isolation: "gvisor", Kernel: "python", Ready: 1, Wanted: 2},
		{Image: "r.example/x:1", Isolation: "container", Ready: 0, Wanted: 7},
	}
	m.Pools(func() []telemetry.Pool { return want }, func() int64 { return 3 })
	text := scrape(t, m)
	if got := telemetry.ReadPools(text); !slices.Equal(got, want) {
		t.Errorf("read %+v, want %+v, of\n%s", got, want, text)
	}
	if !strings.Contains(text, "\ncubby_pool_claims_total 3\n") {
		t.Errorf("no claims in\n%s", text)
	}
	if got := telemetry.ReadPools("cubby_pool_ready{image=\"a\",isolation=\"b\",kernel=\"c\",pool=\"99999999999\"} 1\n"); len(got) != 0 {
		t.Errorf("of nonsense %+v", got)
	}
}
