package filetree_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/filetree"
	"github.com/cubbyhq/cubby/internal/filetree/filetreetest"
	"github.com/cubbyhq/cubby/internal/sandbox"
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

// A program that is being started may still have the descriptor by which another was
// written, which could not be executed: "text file busy".
func TestWrittenProgramIsNotBusy(t *testing.T) {
	tree := confined(t).Files
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	if err := errors.Join(tw.WriteHeader(&tar.Header{Name: "c", Mode: 0o755, Typeflag: tar.TypeReg}), tw.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Write(t.Context(), "/workspace/d", strings.NewReader("#!/bin/sh\n"), sandbox.FileWrite{Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		waits bool
		write func() error
	}{
		"the end of a program": {true, func() error {
			_, err := tree.Write(t.Context(), "/workspace/d", strings.NewReader("true\n"), sandbox.FileWrite{Append: true})
			return err
		}},
		"a program": {true, func() error {
			_, err := tree.Write(t.Context(), "/workspace/a", strings.NewReader("#!/bin/sh\n"), sandbox.FileWrite{Mode: 0o755})
			return err
		}},
		"a text": {false, func() error {
			_, err := tree.Write(t.Context(), "/workspace/b", strings.NewReader("text"), sandbox.FileWrite{Mode: 0o644})
			return err
		}},
		"an archive": {true, func() error { return tree.Extract(t.Context(), "/workspace", &archive, "") }},
	} {
		syscall.ForkLock.Lock()
		done := make(chan error, 1)
		go func() { done <- c.write() }()
		if c.waits {
			select {
			case err := <-done:
				t.Errorf("%s: %v, while a program was being started", name, err)
				done <- nil
			case <-time.After(100 * time.Millisecond):
			}
			syscall.ForkLock.Unlock()
		}
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !c.waits {
			syscall.ForkLock.Unlock()
		}
	}
}
