package doctor

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A file system that is a module is in /proc/filesystems only once something
// has been mounted of it.
func TestFileSystems(t *testing.T) {
	dir := t.TempDir()
	filesystems, modules := filepath.Join(dir, "filesystems"), filepath.Join(dir, "modules.dep")
	for path, text := range map[string]string{
		filesystems: "nodev\tcgroup2\n\text4\n",
		modules:     "kernel/fs/overlayfs/overlay.ko.xz:\nkernel/fs/jfs/jfs.ko.xz: kernel/fs/nls/nls_base.ko.xz\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, modules string
		want          Verdict
	}{
		{"ext4", modules, Good},
		{"overlay", modules, Good},
		{"xfs", modules, Broken},
		{"overlay", filepath.Join(dir, "none"), Broken},
	} {
		d := &doctor{Options: Options{Out: io.Discard}}
		d.fileSystem(c.name, "a test wants it", filesystems, c.modules)
		if len(d.checks) != 1 || d.checks[0].Verdict != c.want {
			t.Errorf("%s with %s: %+v, want %s", c.name, filepath.Base(c.modules), d.checks, c.want)
		}
	}
}

// What the machine has once for all its sandboxes is worth a warning where it
// is little.
func TestSharesOfTheMachine(t *testing.T) {
	for _, c := range []struct {
		pids, files string
		want        Verdict
	}{
		{"32768\n", "2466174\n", Warned},
		{"4194304\n", "9223372036854775807\n", Good},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"kernel/pid_max": c.pids, "fs/file-max": c.files} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d := &doctor{Options: Options{Out: io.Discard}}
		d.shares(dir)
		if len(d.checks) != 2 || d.checks[0].Verdict != c.want || d.checks[1].Verdict != c.want {
			t.Errorf("with %q and %q: %+v, want %s", c.pids, c.files, d.checks, c.want)
		}
	}
}
