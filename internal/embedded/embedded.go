// Package embedded carries the programs that run beside or inside sandboxes,
// compressed, in the cubby binary: cubby-init (the guest agent) and runsc
// (gVisor). `make build` puts them in place; without them the package compiles
// and every use is errs.Unsupported.
//
// A program is unpacked to a directory named after its digest, so that
// sandboxes which an older cubby started keep the very program that they
// started with. The package knows nothing of who uses what: [Prune] is told.
package embedded

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/forklock"
)

//go:embed all:bin
var files embed.FS

// The programs.
const (
	CubbyInit = "cubby-init"
	Runsc     = "runsc"
)

// Program is one embedded program.
type Program struct {
	Name string
	// Digest is the SHA-256 of the unpacked program, 64 hex digits.
	Digest string
	from   fs.FS
}

// Open returns the embedded program called name; errs.Unsupported when this
// cubby was built without it.
func Open(name string) (Program, error) { return open(files, name) }

func open(from fs.FS, name string) (Program, error) {
	missing := errs.E(errs.Unsupported, "this cubby was built without %s", name).Hint("build it with: make build")
	if _, err := fs.Stat(from, "bin/"+name+".zst"); err != nil {
		return Program{}, missing.Because(err)
	}
	digest, err := fs.ReadFile(from, "bin/"+name+".sha256")
	if err != nil {
		return Program{}, missing.Because(err)
	}
	digest = bytes.TrimSpace(digest)
	if sum, err := hex.DecodeString(string(digest)); err != nil || len(sum) != sha256.Size {
		return Program{}, missing.Because(fmt.Errorf("malformed digest of %s", name))
	}
	return Program{Name: name, Digest: string(digest), from: from}, nil
}

var unpacking sync.Mutex // two goroutines that unpack the same program would do the work twice

// Unpack makes sure that the program is at dir/<digest>/<name>, executable and
// complete, and returns that path. It is safe against other processes and
// against a kill in the middle: the file appears under its name only when its
// content was verified and is on the disk.
func (p Program) Unpack(dir string) (string, error) {
	unpacking.Lock()
	defer unpacking.Unlock()

	path := filepath.Join(dir, p.Digest, p.Name)
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// The scratch directory has a name that Prune never takes for a program.
	scratch, err := os.MkdirTemp(dir, scratchPrefix)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	if err := p.write(filepath.Join(scratch, p.Name)); err != nil {
		return "", fmt.Errorf("unpack %s: %w", p.Name, err)
	}
	forklock.Wait()
	if err := os.Chmod(scratch, 0o755); err != nil {
		return "", err
	}
	target := filepath.Join(dir, p.Digest)
	if err := os.Rename(scratch, target); err != nil {
		// Another process was first, or an earlier one left a directory
		// without its program.
		if _, statErr := os.Stat(path); statErr == nil {
			return path, nil
		}
		if err := os.Rename(filepath.Join(scratch, p.Name), path); err != nil {
			return "", err
		}
	}
	return path, syncDir(dir)
}

const scratchPrefix = ".unpack-"

func (p Program) write(path string) (err error) {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := out.Close(); err == nil {
			err = closeErr
		}
	}()
	compressed, err := p.from.Open("bin/" + p.Name + ".zst")
	if err != nil {
		return err
	}
	defer func() { _ = compressed.Close() }()
	in, err := zstd.NewReader(compressed, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer in.Close()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(out, sum), in); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != p.Digest {
		return fmt.Errorf("content has digest %s, not %s", got, p.Digest)
	}
	// The umask must not decide who can run it.
	if err := out.Chmod(0o755); err != nil {
		return err
	}
	return out.Sync()
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// Prune removes unpacked programs that keep does not name. Everything in dir
// that does not look like one is left alone.
func Prune(dir string, keep map[string]bool) error {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if sum, err := hex.DecodeString(e.Name()); err != nil || len(sum) != sha256.Size || keep[e.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
