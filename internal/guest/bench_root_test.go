//go:build root

package guest_test

import (
	"testing"

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
			for b.Loop() {
				uid := sandbox.NewUID()
				box.follow(b, ctx, uid, spec, 0)
				if err := box.Release(ctx, uid); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
