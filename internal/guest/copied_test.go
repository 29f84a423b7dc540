package guest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/capability"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/agent"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/guestd"
	"github.com/cubbyhq/cubby/internal/sandbox"
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
	if _, err := agent.New(h.channel.Dial, new(capability.Known)).Identify(ctx, "", driver.Identity{ID: "claimed", Env: env}); err != nil {
		t.Fatal(err)
	}
	if got := boot(); got != parents {
		t.Errorf("an identity made the boot id %s of %s", got, parents)
	}
	is := driver.Identity{ID: "copy", Env: env}
	done := h.channel.Rekey("another-secret")
	if _, _, err := agent.New(h.channel.Dial, new(capability.Known)).IdentifyCopy(ctx, "claimed", is, "another-secret"); err != nil {
		t.Fatal(err)
	}
	done()
	copys := boot()
	if copys == parents {
		t.Errorf("the copy has its parent's boot id %s", parents)
	}
	if _, _, err := agent.New(h.channel.Dial, new(capability.Known)).IdentifyCopy(ctx, "claimed", is, "another-secret"); err != nil {
		t.Fatal(err)
	}
	if got := boot(); got != copys {
		t.Errorf("the same identity again made the boot id %s of %s", got, copys)
	}
}

// The command that a session ran went on in a copy, where nobody knew of it: the next
// command of the session ran beside it, and the session's state became that of the one
// that ended last.
func TestSessionCommandGoesOnInACopy(t *testing.T) {
	both := map[string]func(*guestd.Config){"plain": func(*guestd.Config) {}, "supervised": supervised(t)}
	for name, launch := range both {
		t.Run(name, func(t *testing.T) {
			h := start(t, func(c *guestd.Config) { homed(t, c); launch(c) })
			ctx := testContext(t)
			dir := t.TempDir()
			at := func(name string) string { return filepath.Join(dir, name) }
			awaits := func(name string) string {
				return "; touch " + at(name) + "; until [ -e " + at("go") + " ]; do sleep 0.01; done"
			}
			begin := func(spec sandbox.ExecSpec) {
				t.Helper()
				s, err := h.Exec(ctx, sandbox.NewUID(), &guest.Start{ExecSpec: spec}, 0)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			exists := func(name string) bool { _, err := os.Stat(at(name)); return err == nil }
			await := func(name string) {
				t.Helper()
				for !exists(name) {
					if ctx.Err() != nil {
						t.Fatalf("there is no %s", name)
					}
					time.Sleep(time.Millisecond)
				}
			}
			h.run(t, sandbox.ExecSpec{Session: "main", Shell: "x=before; (until [ -e " + at("go") + " ]; do sleep 0.01; done; touch " + at("left") + ") >/dev/null 2>&1 &"})
			h.run(t, sandbox.ExecSpec{Session: "idle", Shell: "x=idle"})
			begin(sandbox.ExecSpec{Session: "main", Shell: "x=after; (trap '' HUP TERM" + awaits("child") + "; touch " + at("stray") + ") & :" + awaits("runs") + "; touch " + at("end")})
			begin(sandbox.ExecSpec{Shell: ":" + awaits("command") + "; touch " + at("ended")})
			for _, name := range []string{"child", "runs", "command"} {
				await(name)
			}

			is := driver.Identity{ID: "copy", Env: []string{"PATH=" + os.Getenv("PATH")}}
			done := h.channel.Rekey("another-secret")
			_, warnings, err := agent.New(h.channel.Dial, new(capability.Known)).IdentifyCopy(ctx, "", is, "another-secret")
			if err != nil {
				t.Fatal(err)
			}
			done()
			if said := strings.Join(warnings, "\n"); !strings.Contains(said, "they are as they were before it: main") || strings.Contains(said, "idle") {
				t.Errorf("the warnings are %q", said)
			}
			touch(t, at("go"))
			// What is no session's goes on, and so does what an earlier command has left.
			await("ended")
			await("left")
			if r := h.run(t, sandbox.ExecSpec{Session: "main", Shell: "echo $x"}); string(r.stdout) != "before\n" {
				t.Errorf("the session has x=%s", r.stdout)
			}
			for _, name := range []string{"end", "stray"} {
				if exists(name) {
					t.Errorf("%s: the command went on", name)
				}
			}
		})
	}
}
