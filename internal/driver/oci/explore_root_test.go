//go:build root

package oci

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver/drivertest"
)

func TestExplore(t *testing.T) {
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			m := newMachine(t, w.runtime)
			d := m.open(t)
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			h, err := d.Create(ctx, testSpec(t, w.isolation))
			if err != nil {
				t.Fatal(err)
			}
			defer d.Destroy(context.Background(), h)
			if err := d.Start(ctx, h); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(os.Getenv("EXPLORE")) {
				user, script, _ := strings.Cut(strings.TrimSpace(line), ":")
				out, exit, err := drivertest.Exec(ctx, d, h, user, script)
				t.Logf("%s: %s\n%s[%v %v]", user, script, out, exit.GetCode(), err)
			}
		})
	}
}
