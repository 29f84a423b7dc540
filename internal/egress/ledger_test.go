package egress

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/telemetry"
)

func TestLedger(t *testing.T) {
	var text strings.Builder
	m := telemetry.NewEgressMetrics("v0")
	l := NewLedger(slog.New(slog.NewTextHandler(&text, nil)), m)
	d := Decision{Host: "example.com", Port: 443}.denied(RuleAllowlist, "it is not on the list", "")
	ok := Connection{Decision: Decision{Host: "pypi.org", Port: 443, Protocol: ProtocolConnect}.allowed(RuleOpen), Sent: 3, Received: 4, Duration: time.Second}
	const times = 1000
	for range times {
		l.Decided("noisy", d)
		l.Decided("noisy", ok.Decision)
		l.Ended("noisy", ok)
	}
	l.Decided("quiet", d)
	l.Flush()
	got := text.String()
	for _, want := range []string{
		"msg=denied uid=noisy host=example.com port=443 rule=allowlist", "msg=denied uid=quiet ",
		"msg=allowed uid=noisy host=pypi.org port=443 rule=open protocol=connect sent=3 received=4 duration=1s",
		`msg="not every connection has a line" uid=noisy `,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the log does not have %q:\n%.2000s", want, got)
		}
	}
	if n := strings.Count(got, "\n"); n >= times {
		t.Errorf("%d lines for one noisy sandbox", n)
	}
	res := httptest.NewRecorder()
	m.Handler().ServeHTTP(res, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{`cubby_egress_decisions_total{decision="denied",rule="allowlist"} 1001`, `{decision="allowed",rule="open"} 1000`} {
		if !strings.Contains(res.Body.String(), want) {
			t.Errorf("the metrics do not have %q", want)
		}
	}
	text.Reset()
	if l.Flush(); text.Len() != 0 {
		t.Errorf("sums are told twice: %s", text.String())
	}
}
