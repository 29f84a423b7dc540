package guest_test

import (
	"os"
	"testing"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/agent"
)

// The agent of a copy had the boot id of its parent. It draws one of its own with its
// first identity, and keeps it.
func TestCopyHadTheBootIDOfItsParent(t *testing.T) {
	h := start(t, nil)
	ctx := testContext(t)
	boot := func() string {
		t.Helper()
		hello, err := h.Hello(ctx)
		if err != nil || hello.BootID == "" {
			t.Fatalf("Hello = %+v, %v", hello, err)
		}
		return hello.BootID
	}
	parents := boot()
	env := []string{"PATH=" + os.Getenv("PATH")}
	if _, err := agent.New(h.channel.Dial).Identify(ctx, "", driver.Identity{ID: "claimed", Env: env}); err != nil {
		t.Fatal(err)
	}
	if got := boot(); got != parents {
		t.Errorf("an identity made the boot id %s of %s", got, parents)
	}
	is := driver.Identity{ID: "copy", Env: env}
	done := h.channel.Rekey("another-secret")
	if _, _, err := agent.New(h.channel.Dial).IdentifyCopy(ctx, "claimed", is, "another-secret"); err != nil {
		t.Fatal(err)
	}
	done()
	copys := boot()
	if copys == parents {
		t.Errorf("the copy has its parent's boot id %s", parents)
	}
	if _, _, err := agent.New(h.channel.Dial).IdentifyCopy(ctx, "claimed", is, "another-secret"); err != nil {
		t.Fatal(err)
	}
	if got := boot(); got != copys {
		t.Errorf("the same identity again made the boot id %s of %s", got, copys)
	}
}
