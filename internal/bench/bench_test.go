package bench

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestQuantile(t *testing.T) {
	var s sample
	for i := range 100 {
		s.add(time.Duration(100-i) * time.Millisecond)
	}
	tests := []struct {
		q    float64
		want time.Duration
	}{{0.5, 50 * time.Millisecond}, {0.95, 95 * time.Millisecond}, {0.99, 99 * time.Millisecond}, {1, 100 * time.Millisecond}, {0, time.Millisecond}}
	for _, tt := range tests {
		if got := s.quantile(tt.q); got != tt.want {
			t.Errorf("quantile(%v) = %v, want %v", tt.q, got, tt.want)
		}
	}
	if got := (sample{7}).quantile(0.99); got != 7 {
		t.Errorf("quantile of one = %v", got)
	}
	if got := (sample)(nil).quantile(0.5); got != 0 {
		t.Errorf("quantile of none = %v", got)
	}
	if s[0] != 100*time.Millisecond {
		t.Error("quantile sorted the sample itself")
	}
}

func TestRound(t *testing.T) {
	for in, want := range map[float64]float64{0: 0, 1234.56: 1235, 12.345: 12.3, 0.0012345: 0.00123, -1.2345: -1.23} {
		if got := round(in); got != want {
			t.Errorf("round(%v) = %v, want %v", in, got, want)
		}
	}
}

func TestReport(t *testing.T) {
	r := &Report{
		Machine: Machine{CPU: "Test CPU", CPUs: 2, Memory: 24 << 30, OS: "Debian", Kernel: "6.1", Cgroups: "v2", Load: "0.10", Runtimes: []string{"crun 1", "runc 2"}, Cubby: "cubby dev"},
		Image:   "base (1600 MB)", Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Seconds: 61, Quick: true,
		Notes: []string{"no docker figures: no Docker Engine answers"},
	}
	s := r.section("create", "Create to first command")
	s.times("runsc run", sample{100 * time.Millisecond, 120 * time.Millisecond}, 0)
	s.times("gvisor: create, first command", sample{90 * time.Millisecond, 180 * time.Millisecond}, 120)
	s.over("gvisor: create, first command", "runsc run")
	s.over("gvisor: create, first command", "not measured")
	s = r.section("transfer", "A file of 100 MiB")
	s.value("gvisor: upload", "MB/s", 287.4, 5, 300, true)
	s.value("gvisor: download", "MB/s", 1200, 5, 300, true)

	var b strings.Builder
	if err := r.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "report.md")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("report (-want +got), go test -update rewrites it:\n%s", diff)
	}
	if data, err := json.Marshal(r); err != nil || !strings.Contains(string(data), `"ratio":0.9`) {
		t.Errorf("JSON %s, %v", data, err)
	}
}

func TestUnknownSection(t *testing.T) {
	if _, err := Run(t.Context(), Config{Sections: []string{"frob"}}); err == nil {
		t.Error("an unknown section was taken")
	}
}

func TestProcFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("Rss:  99 kB\nPss:                 123 kB\nPss_Dirty: 5 kB\nPRETTY_NAME=\"Debian\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := kilobytes(path, "Pss"); got != 123 {
		t.Errorf("Pss = %d, want 123", got)
	}
	if got := field(path, "PRETTY_NAME"); got != `"Debian"` {
		t.Errorf("PRETTY_NAME = %s", got)
	}
	if got := kilobytes(path, "Swap"); got != 0 {
		t.Errorf("Swap = %d, want 0", got)
	}
	if !pids()[os.Getpid()] || rollupPSS(os.Getpid()) == 0 || memAvailable() == 0 {
		t.Error("this process is not found in /proc")
	}
}

func TestCleanEnv(t *testing.T) {
	got := cleanEnv([]string{"PATH=/bin", "CUBBY_TOKENS=a:b", "CUBBY_URL=x", "NOTIFY_SOCKET=/x", "HOME=/"})
	if want := []string{"PATH=/bin", "HOME=/"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSeed(t *testing.T) {
	ids, err := seed(t.Context(), t.TempDir(), 50)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != 50 {
		t.Errorf("%d different ids, want 50", n)
	}
}
