package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Recipe says how an image is made from Debian packages. It is a directory:
// image.toml holds the fields below, setup.sh runs as root inside the new
// image after its packages are installed, and files/ is copied over its root.
type Recipe struct {
	Suite    string            `toml:"suite"`
	Sources  []string          `toml:"sources"`  // lines of sources.list
	Packages []string          `toml:"packages"` // without recommended ones
	Exclude  []string          `toml:"exclude"`  // globs that dpkg leaves out
	Include  []string          `toml:"include"`  // exceptions from Exclude
	Env      map[string]string `toml:"env"`

	name  string
	files fs.FS
	key   string // digest of all of it
}

// recipeNames lists the recipes in dir.
func recipeNames(dir fs.FS) []string {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// loadRecipe reads a recipe. NotFound names the ones that exist; a recipe with
// unknown keys is a fault of the program that embeds it.
func loadRecipe(dir fs.FS, name string) (*Recipe, error) {
	if !slices.Contains(recipeNames(dir), name) {
		return nil, errs.E(errs.NotFound, "no recipe %q", name).
			Hint("there are recipes for: %s", strings.Join(recipeNames(dir), ", "))
	}
	files, err := fs.Sub(dir, name)
	if err != nil {
		return nil, fmt.Errorf("recipe %s: %w", name, err)
	}
	text, err := fs.ReadFile(files, "image.toml")
	if err != nil {
		return nil, fmt.Errorf("recipe %s: %w", name, err)
	}
	r := &Recipe{name: name, files: files}
	dec := toml.NewDecoder(bytes.NewReader(text))
	meta, err := dec.Decode(r)
	if err != nil {
		return nil, fmt.Errorf("recipe %s: %w", name, err)
	}
	if extra := meta.Undecoded(); len(extra) > 0 {
		return nil, fmt.Errorf("recipe %s: unknown key %s", name, extra[0])
	}
	if r.key, err = treeKey(files); err != nil {
		return nil, fmt.Errorf("recipe %s: %w", name, err)
	}
	return r, nil
}

// environment returns the recipe's Env as KEY=VALUE, sorted.
func (r *Recipe) environment() []string {
	var env []string
	for _, k := range slices.Sorted(maps.Keys(r.Env)) {
		env = append(env, k+"="+r.Env[k])
	}
	return env
}

// writeTo writes the recipe's files below dir. What begins with "#!" becomes
// executable: embedded files carry no modes.
func (r *Recipe) writeTo(dir string) error {
	return fs.WalkDir(r.files, ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(p))
		if e.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := fs.ReadFile(r.files, p)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(data, []byte("#!")) {
			mode = 0o755
		}
		return os.WriteFile(to, data, mode)
	})
}

// releaseURLs returns where the sources' release files are. A release file is
// signed and changes with every package in it, so it stands for all of them.
func (r *Recipe) releaseURLs() ([]string, error) {
	var urls []string
	for _, s := range r.Sources {
		f := strings.Fields(s)
		if len(f) < 4 || f[0] != "deb" || !strings.HasPrefix(f[1], "http") {
			return nil, fmt.Errorf("recipe %s: source %q is not \"deb URL suite component\"", r.name, s)
		}
		urls = append(urls, strings.TrimSuffix(f[1], "/")+"/"+path.Join("dists", f[2], "InRelease"))
	}
	return urls, nil
}

// treeKey is a digest over names and contents.
func treeKey(files fs.FS) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(files, ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, p)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %d\n", p, len(data))
		h.Write(data)
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)), err
}
