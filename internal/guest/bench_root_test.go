//go:build root

package guest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// What a command costs from the host's side, without daemon and REST.
func BenchmarkExecTrue(b *testing.B) {
	for _, gvisor := range []bool{true, false} {
		name := map[bool]string{true: "gvisor", false: "container"}[gvisor]
		b.Run(name, func(b *testing.B) {
			box := startBox(b, gvisor, nil)
			spec := &guest.Start{ExecSpec: sandbox.ExecSpec{Argv: []string{"true"}}}
			ctx := testContext(b)
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				uid := sandbox.NewUID()
				box.follow(b, ctx, uid, spec, 0)
				took = append(took, time.Since(began))
				if err := box.Release(ctx, uid); err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(took)
			for name, i := range map[string]int{"min-ms": 0, "p10-ms": len(took) / 10, "p50-ms": len(took) / 2, "p99-ms": len(took) * 99 / 100} {
				b.ReportMetric(float64(took[i].Microseconds())/1000, name)
			}
		})
	}
}
