package doctor

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// poolChecks is what is said of the pool of the daemon at an address.
func poolChecks(t *testing.T, url string) []Check {
	t.Helper()
	d := &doctor{Options: Options{Client: client.New(url), Out: io.Discard}}
	d.pool(t.Context())
	return d.checks
}

// What a daemon keeps ready is told by kind; that it has not got it yet, or has no
// memory for it, by the number.
func TestPool(t *testing.T) {
	kinds := config.Pools{List: []config.Pool{{Count: 2}, {Count: 1, User: "root"}}}
	for _, tt := range []struct {
		name   string
		config func(*config.Config)
		want   []string
	}{
		{"off", func(*config.Config) {}, []string{"nothing is kept ready"}},
		{"fits", func(c *config.Config) { c.Pool = kinds }, []string{
			"2 of 2 ready: base, container, no kernel", "1 of 1 ready: base, container, no kernel",
		}},
		{"with a kernel", func(c *config.Config) {
			c.Pool.List = []config.Pool{{Count: 1, Kernel: "python"}}
			c.MinFreeMemory = math.MaxInt64 / 2 // nobody waits for a kernel here
		}, []string{"0 of 1 ready: base, container, a kernel for python"}},
		{"no memory", func(c *config.Config) { c.Pool, c.MinFreeMemory = kinds, math.MaxInt64/2 }, []string{
			"0 of 2 ready: base, container, no kernel", "0 of 1 ready: base, container, no kernel",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			daemon := daemontest.Start(t, daemontest.Options{Config: tt.config})
			said := func() (bool, []Check) {
				got := poolChecks(t, daemon.URL)
				if len(got) != len(tt.want) {
					return false, got
				}
				for i, c := range got {
					if c.Name != "pool" || c.Verdict != Good || c.Detail != tt.want[i] || c.Fix != "" {
						return false, got
					}
				}
				return true, got
			}
			for until := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
				ok, got := said()
				if ok {
					return
				}
				if time.Now().After(until) {
					t.Fatalf("it says %+v, want %q", got, tt.want)
				}
			}
		})
	}
}

// Who may not see the metrics is not told that there is no pool.
func TestPoolOfOthers(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error":{"code":"forbidden","message":"no"}}`, http.StatusForbidden)
	}))
	defer srv.Close()
	if got := poolChecks(t, srv.URL); len(got) != 0 {
		t.Errorf("it says %+v, want nothing", got)
	}
}
