package oci

import (
	"os"
	"path/filepath"

	"github.com/cubbyhq/cubby/internal/driver/oci/truststore"
)

// layAuthorities writes the files to the disk, where the sandbox's root may
// change them within its quota. A directory that is there already is the
// sandbox's: nothing in it is read or written.
func (n note) layAuthorities(from *truststore.Files) error {
	if n.Authorities == "" || !n.AuthoritiesDir {
		return nil
	}
	dir := n.authoritiesDir()
	if _, err := os.Lstat(dir); err == nil {
		return nil
	}
	files, err := from.Of(n.Authorities)
	if err != nil {
		return err
	}
	// It appears whole: a start after a crash would take half of it for all.
	fresh := dir + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.MkdirAll(fresh, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(fresh, name)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
		if err := os.Chmod(path, 0o644); err != nil { // whatever the umask is
			return err
		}
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	return os.Rename(fresh, dir)
}

func (n note) authoritiesDir() string { return filepath.Join(n.root(), "etc/cubby") }
