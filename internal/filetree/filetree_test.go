package filetree_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/filetree"
	"github.com/cubbyhq/cubby/internal/filetree/filetreetest"
)

func confined(t *testing.T) filetreetest.Env {
	workspace, home := filetreetest.Dirs(t)
	return filetreetest.Env{
		Files: filetree.Confined(filetree.Options{},
			filetree.Mount{Path: "/workspace", Dir: workspace},
			filetree.Mount{Path: "/home/sandbox", Dir: home}),
		Workspace: workspace, Home: home, Confined: true,
	}
}

func whole(t *testing.T) filetreetest.Env {
	workspace, home := filetreetest.Dirs(t)
	return filetreetest.Env{
		Files:     filetree.Whole(filetree.Options{MapPath: mapTo(workspace, home)}),
		Workspace: workspace, Home: home,
	}
}

// mapTo stands in for the bind mounts of a sandbox.
func mapTo(workspace, home string) func(string) string {
	return func(name string) string {
		for _, m := range []filetree.Mount{{Path: "/workspace", Dir: workspace}, {Path: "/home/sandbox", Dir: home}} {
			if rest, ok := strings.CutPrefix(name, m.Path); ok && (rest == "" || rest[0] == '/') {
				return filepath.Join(m.Dir, rest)
			}
		}
		return name
	}
}

func TestConfined(t *testing.T)        { filetreetest.Run(t, confined) }
func TestConfinedAttacks(t *testing.T) { filetreetest.Attacks(t, confined) }
func TestWhole(t *testing.T)           { filetreetest.Run(t, whole) }
func TestWholeAttacks(t *testing.T)    { filetreetest.Attacks(t, whole) }
