//go:build root

package guest_test

import (
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestZZ(t *testing.T) {
		box := startBox(t, true, nil)
		ctx := testContext(t)
		for range 10 {
			uid := sandbox.NewUID()
			box.follow(t, ctx, uid, &guest.Start{ExecSpec: sandbox.ExecSpec{Argv: []string{"true"}}}, 0)
			time.Sleep(300*time.Millisecond)
		}
}
