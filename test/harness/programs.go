package harness

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// unpacked is a program that cubby carries, as make build left it.
type unpacked struct{ path, name, digest string }

// programs are those of this checkout whose content is what the digest beside
// their compressed form says.
var programs = sync.OnceValue(func() (found []unpacked) {
	root := findRepository()
	if root == "" {
		return nil
	}
	for _, name := range []string{"cubby-init", "runsc"} {
		digest, err := os.ReadFile(filepath.Join(root, "internal/embedded/bin", name+".sha256"))
		if err != nil {
			continue
		}
		p := unpacked{filepath.Join(root, ".cache/programs", name), name, string(bytes.TrimSpace(digest))}
		if sum, err := sumOf(p.path); err == nil && sum == p.digest {
			found = append(found, p)
		}
	}
	return found
})

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// furnish gives a fresh data directory the programs that a daemon would unpack
// there, which takes longer than to start a sandbox. A daemon removes what is not
// of its own build, and unpacks what is not there.
func furnish(t testing.TB, data string) {
	t.Helper()
	all := filepath.Join(data, "runtimes")
	if err := os.Mkdir(all, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, p := range programs() {
		dir := filepath.Join(all, p.digest)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(p.path, filepath.Join(dir, p.name)); err != nil { // on another file system
			_ = os.Remove(dir)
		}
	}
}
