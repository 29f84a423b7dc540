//go:build root && long

package walls_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
)

// perlStorm is the storm for an image without Python.
const perlStorm = "use POSIX; $SIG{$_} = q(IGNORE) for qw(INT TERM HUP); while (1) { my $p = fork; POSIX::setsid() if defined $p && !$p; kill q(CONT), -1 }"

// The same of R, for what it waits for and what it does not, and for R itself,
// whose children go on with its loop (in gVisor as with Python).
func TestForkStormOfAnRCellEndsWithIt(t *testing.T) {
	sandboxesWith(t, client.CreateOptions{Image: "r", Limits: &client.Limits{PIDs: 96, CPUs: 0.5}}, func(t *testing.T, c *client.Client, id string) {
		for _, s := range []struct {
			code  string
			limit time.Duration // as in cellStorms
		}{
			{`system("perl -e '` + perlStorm + `'")`, 4 * time.Second},
			{`system("perl -e '` + perlStorm + `'", wait = FALSE); Sys.sleep(100)`, 4 * time.Second},
			{`repeat tryCatch(parallel:::mcfork(), error = function(e) NULL)`, time.Second},
		} {
			if strings.HasPrefix(s.code, "repeat") && strings.HasSuffix(t.Name(), "/gvisor") {
				continue
			}
			x, err := c.RunCode(t.Context(), id, client.CodeRequest{Code: s.code, Language: "r", Timeout: s.limit})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s", x.Message)
			if x.Reason != "timeout" {
				t.Errorf("%s: it ended with %s: %s", s.code, x.Reason, x.Message)
			}
			none(t, c, id)
		}
	})
}
