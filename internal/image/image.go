// Package image keeps the root filesystems that sandboxes start from: it
// builds them from Debian packages, pulls them from OCI registries, imports
// them from archives, unpacks, verifies and removes them. Images are
// addressed by the digest of their tree, shared by all their sandboxes and
// never written to after they were unpacked.
//
// Archives and registries are hostile input: every write of an unpack goes
// through os.Root, every count and size is bounded, and nothing of an image is
// ever executed on the host outside a build from signed Debian packages. The
// package runs no sandbox and knows no driver; it needs no daemon, and several
// processes may work on one directory at once.
//
// # The directory
//
//	DIR/<digest>/rootfs      an unpacked image
//	DIR/<digest>/image.json  what it is, and the stamps that prove it whole
//	DIR/names.json           names to digests, replaced atomically
//	DIR/pins/<digest>/<uid>  an empty file per sandbox that needs the image
//	DIR/.lock                flock(2) around every change of the above
//	DIR/.tmp-*               work in progress; removed once its maker is gone
//	DIR/.cache/              packages and package lists of earlier builds
package image

import (
	"slices"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Image is one unpacked root filesystem.
type Image struct {
	Name      string    `json:"name"`   // "" when another image has taken its name
	Digest    string    `json:"digest"` // 64 hex digits
	Size      int64     `json:"size"`   // bytes on disk
	CreatedAt time.Time `json:"created_at"`
	Source    string    `json:"source"` // "build base", "pull docker.io/…", "import x.tar"
	// Env is what the image wants in the environment of every command,
	// KEY=VALUE.
	Env []string `json:"env"`
	// Dir is the root filesystem on the host.
	Dir string `json:"dir"`
	// Damaged: the tree is not what was unpacked. It is never used.
	Damaged bool `json:"damaged"`
	// Outdated: it was built, and its recipe has changed since. It works. Only
	// List says so.
	Outdated bool `json:"outdated,omitempty"`
	// Definition says what it was made of, where it was built from another
	// image.
	Definition *Definition `json:"definition,omitempty"`
	// Problem says what is wrong with a damaged image.
	Problem string `json:"problem,omitempty"`

	recipe string // digest of the recipe that it was built by
}

const maxNameLength = 200

// checkName accepts what people call images: "base", "python:3.12-slim",
// "ghcr.io/acme/tool". Names are keys of a file and never paths.
func checkName(name string) error {
	ok := name != "" && len(name) <= maxNameLength && !strings.Contains(name, "//")
	for i, c := range []byte(name) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || i == len(name)-1 || !strings.ContainsRune("._:/-", rune(c))) {
			ok = false
		}
	}
	if !ok || isDigest(name) {
		return errs.E(errs.Invalid, "malformed image name").
			Hint("a name has up to %d characters of A-Z a-z 0-9 . _ : / - and begins and ends with a letter or digit", maxNameLength)
	}
	return nil
}

const digestLength = 64

func isDigest(s string) bool { return len(s) == digestLength && isHex(s) }

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// validEnv keeps the entries of an image's environment that a process can be
// given, the last of each name.
func validEnv(env []string) []string {
	const maxEntries, maxBytes = 1000, 64 << 10
	last := map[string]int{}
	var out []string
	total := 0
	for _, e := range env {
		k, _, ok := strings.Cut(e, "=")
		total += len(e)
		if !ok || k == "" || strings.ContainsRune(e, 0) || len(out) == maxEntries || total > maxBytes {
			continue
		}
		if i, seen := last[k]; seen {
			out[i] = e
			continue
		}
		last[k] = len(out)
		out = append(out, e)
	}
	return slices.Clip(out)
}
