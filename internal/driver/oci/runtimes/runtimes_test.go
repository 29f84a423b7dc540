package runtimes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
)

// TestOlderRuntimeIsNotAsked: each act is refused, before anything is done, with a runtime
// that does not know its command, and with one that lacks any of the flags.
func TestOlderRuntimeIsNotAsked(t *testing.T) {
	dir := t.TempDir()
	// runtime is a program that has one command, with flags.
	runtime := func(t *testing.T, command string, flags []string) Program {
		t.Helper()
		asked := filepath.Join(dir, strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())+strings.Join(flags, "-")+command)
		help := command + " <container id> - does it.\n"
		for _, flag := range flags {
			help += "  -" + flag + " string\n    \twhat it is, or -hold\n"
		}
		script := fmt.Sprintf("#!/bin/sh\necho \"$*\" >>%s.asked\nif [ \"$*\" != 'help %s' ]; then echo 'Subcommand not understood' >&2; exit 128; fi\ncat <<'END'\n%sEND\n", asked, command, help)
		if err := os.WriteFile(asked, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		return Program{Path: asked, Origin: asked}
	}
	for act, need := range needs {
		t.Run(string(act), func(t *testing.T) {
			var k Known
			check := func(of Program, want bool) {
				t.Helper()
				for range 2 {
					err := k.Require(t.Context(), of, act)
					if want && err != nil || !want && (!errors.Is(err, errs.Unsupported) || !errors.Is(err, driver.ErrOutdated)) {
						t.Errorf("%s = %v, want it to be possible: %t", of.Path, err, want)
					}
				}
				if asked, err := os.ReadFile(of.Path + ".asked"); err != nil || string(asked) != "help "+need.command+"\n" {
					t.Errorf("it was asked %q, %v; want for help, once", asked, err)
				}
			}
			check(runtime(t, need.command, need.flags), true)
			check(runtime(t, "state", nil), false)
			for i := range need.flags {
				less := append(append([]string{}, need.flags[:i]...), need.flags[i+1:]...)
				check(runtime(t, need.command, less), false)
			}
		})
	}
	t.Run("one that cannot be asked", func(t *testing.T) {
		var k Known
		gone := Program{Path: filepath.Join(dir, "gone")}
		if err := k.Require(t.Context(), gone, Keep); !errors.Is(err, errs.Unavailable) {
			t.Errorf("Require = %v, want unavailable", err)
		}
	})
}
