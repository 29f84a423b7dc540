//go:build root

package oci

import (
	"context"
	"testing"

	"github.com/cubbyhq/cubby/internal/driver/drivertest"
)

// BenchmarkLife measures what a create through the API waits for.
func BenchmarkLife(b *testing.B) {
	for _, w := range walls {
		b.Run(w.runtime, func(b *testing.B) {
			m := newMachine(b, w.runtime)
			d := m.open(b)
			spec := testSpec(b, w.isolation)
			ctx := context.Background()
			for b.Loop() {
				h, err := d.Create(ctx, spec)
				if err != nil {
					b.Fatal(err)
				}
				if err := d.Start(ctx, h); err != nil {
					b.Fatal(err)
				}
				if _, _, err := drivertest.Exec(ctx, d, h, "sandbox", "true"); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := d.Destroy(ctx, h); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
