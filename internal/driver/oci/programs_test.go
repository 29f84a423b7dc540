package oci

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// An upgrade removes the programs of sandboxes that are gone, and keeps those
// of sandboxes that are not.
func TestPrune(t *testing.T) {
	cfg := Config{StateDir: t.TempDir(), RuntimesDir: t.TempDir()}
	used, unused := strings.Repeat("a1", 32), strings.Repeat("b2", 32)
	for _, digest := range []string{used, unused} {
		if err := os.Mkdir(filepath.Join(cfg.RuntimesDir, digest), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	exists := func(digest string) bool {
		_, err := os.Stat(filepath.Join(cfg.RuntimesDir, digest))
		return err == nil
	}
	n := sampleNote(sandbox.GVisor, runsc)
	n.Runtime.Digest = used
	h, err := places{}.handle(n)
	if err != nil {
		t.Fatal(err)
	}
	b := box{uid: n.UID, dir: filepath.Join(cfg.StateDir, string(n.UID))}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		t.Fatal(err)
	}

	// A sandbox whose note is missing could use anything.
	if _, err := New(cfg); err != nil {
		t.Fatal(err)
	}
	if !exists(used) || !exists(unused) {
		t.Error("programs were removed although a note could not be read")
	}
	if err := os.WriteFile(b.noteFile(), h, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg); err != nil {
		t.Fatal(err)
	}
	if !exists(used) || exists(unused) {
		t.Errorf("used program exists = %v, unused = %v; want true, false", exists(used), exists(unused))
	}
}

// A crash of the host can leave an older note of a sandbox beside its memory, which
// needs the programs of its own note.
func TestPruneKeepsTheProgramsOfAMemory(t *testing.T) {
	cfg := Config{StateDir: t.TempDir(), RuntimesDir: t.TempDir()}
	older, slept := strings.Repeat("a1", 32), strings.Repeat("b2", 32)
	n := sampleNote(sandbox.GVisor, runsc)
	b := box{uid: n.UID, dir: filepath.Join(cfg.StateDir, string(n.UID))}
	if err := os.MkdirAll(filepath.Dir(b.memory().Image()), 0o700); err != nil {
		t.Fatal(err)
	}
	for digest, path := range map[string]string{older: b.noteFile(), slept: filepath.Join(filepath.Dir(b.memory().Image()), "note.json")} {
		n.Runtime.Digest = digest
		h, err := places{}.handle(n)
		if err == nil {
			err = os.WriteFile(path, h, 0o600)
		}
		if err == nil {
			err = os.Mkdir(filepath.Join(cfg.RuntimesDir, digest), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := New(cfg); err != nil {
		t.Fatal(err)
	}
	for _, digest := range []string{older, slept} {
		if _, err := os.Stat(filepath.Join(cfg.RuntimesDir, digest)); err != nil {
			t.Error(err)
		}
	}
}

// TestProgramsAreRenewedTogether: an agent of today counts on a runtime of today, and
// is not put beside one of before that could not be renewed.
func TestProgramsAreRenewedTogether(t *testing.T) {
	dir := t.TempDir()
	before := sampleNote(sandbox.GVisor, runsc)
	before.Init = program{Kind: "cubby-init", Path: filepath.Join(dir, "init"), Digest: "a1"}
	before.Runtime = program{Kind: runsc, Path: filepath.Join(dir, "runsc"), Digest: "b2"}
	for _, p := range []program{before.Init, before.Runtime} {
		if err := os.WriteFile(p.Path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// Nothing can be unpacked there.
	today := programs{dir: filepath.Join(before.Runtime.Path, "nowhere"), init: filepath.Join(dir, "init-of-today")}
	n := before
	if err := today.provide(&n, true); err != nil || n.Init != before.Init || n.Runtime != before.Runtime {
		t.Errorf("without a runtime of today: %v, %+v %+v", err, n.Init, n.Runtime)
	}
	if err := os.Remove(before.Init.Path); err != nil {
		t.Fatal(err)
	}
	n = before
	if err := today.provide(&n, true); err == nil {
		t.Errorf("a new agent %+v beside an old runtime %+v", n.Init, n.Runtime)
	}
	today.runsc = filepath.Join(dir, "runsc-of-today")
	n = before
	if err := today.provide(&n, true); err != nil || n.Init.Path != today.init || n.Runtime.Path != today.runsc {
		t.Errorf("with both: %v, %+v %+v", err, n.Init, n.Runtime)
	}
}
