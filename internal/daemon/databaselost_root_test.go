//go:build root

package daemon_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/store/postgrestest"
)

// TestDatabaseLostAroundServing: a daemon that loses PostgreSQL while it begins to serve
// does not end. It answers 503 meanwhile, and goes on by itself.
func TestDatabaseLostAroundServing(t *testing.T) {
	postgrestest.New(t) // keeps the server for all moments
	for _, statement := range []int{1, 2, 4, 8, 16, 24} {
		t.Run(fmt.Sprint(statement), func(t *testing.T) {
			t.Parallel()
			line, url := postgrestest.NewLine(t, postgrestest.New(t))
			var lost <-chan struct{}
			d := daemontest.Start(t, daemontest.Options{
				Config: func(c *config.Config) { c.DatabaseURL = config.Secret(url) },
				Opened: func() { lost = line.CutAfter(statement) },
			})
			waitFor(t, "the database to be lost", func() bool {
				select {
				case <-lost:
					return true
				default:
					_, _ = ask(t, "", "GET", d.URL+"/v1/sandboxes", "") // the start may have had fewer statements
					return false
				}
			})
			waitFor(t, "a call to be refused", func() bool {
				status, _ := ask(t, "", "GET", d.URL+"/v1/sandboxes", "")
				return status == http.StatusServiceUnavailable
			})
			if status, answer := ask(t, "", "GET", d.URL+"/readyz", ""); status != http.StatusServiceUnavailable {
				t.Errorf("/readyz without a database = %d %s", status, answer)
			}
			line.Mend()
			works(t, d, "a")
			if err := d.Stop(); err != nil {
				t.Errorf("the daemon stopped with %v", err)
			}
		})
	}
}
