package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/cubbyhq/cubby/images"
	"github.com/cubbyhq/cubby/internal/errs"
)

// Recipe says how an image is made from Debian packages. It is a directory:
// image.toml holds the fields below, setup.sh runs as root inside the new
// image after its packages are installed, and files/ is copied over its root.
//
// Its steps install what Debian has not, in a sandbox that is begun from the
// Debian part.
//
// One that extends another adds to all of it: its lists and its environment to
// the other's, its files over the other's, its setup.sh and its steps after the
// other's.
type Recipe struct {
	Extends  string            `toml:"extends"`
	Suite    string            `toml:"suite"`
	Sources  []string          `toml:"sources"`  // lines of sources.list
	Packages []string          `toml:"packages"` // without recommended ones
	Exclude  []string          `toml:"exclude"`  // globs that dpkg leaves out
	Include  []string          `toml:"include"`  // exceptions from Exclude
	Env      map[string]string `toml:"env"`
	Steps

	name   string
	files  []fs.FS // the extended recipe's first
	key    string  // digest of all of it
	rounds []Steps // of the extended recipe first
	// debian is the recipe of the Debian part, whose image the steps begin
	// from: this one, or what it extends where it adds nothing to that.
	debian *Recipe
}

// Recipes lists the built-in recipes.
func Recipes() []string { return recipeNames(images.FS()) }

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
// unknown keys, or one that extends itself, is a fault of the program that
// embeds it.
func loadRecipe(dir fs.FS, name string) (*Recipe, error) {
	return loadExtending(dir, name, nil)
}

// loadExtending is loadRecipe for one that the recipes of above extend.
func loadExtending(dir fs.FS, name string, above []string) (*Recipe, error) {
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
	r := &Recipe{name: name, files: []fs.FS{files}}
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
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("recipe %s: %w", name, err)
	}
	if r.rounds = nil; !r.none() {
		r.rounds = []Steps{r.Steps}
	}
	r.debian = r
	if r.Extends == "" {
		return r, nil
	}
	above = append(above, name)
	if slices.Contains(above, r.Extends) {
		return nil, fmt.Errorf("recipe %s extends itself: %s", r.Extends, strings.Join(above, ", "))
	}
	first, err := loadExtending(dir, r.Extends, above)
	if err != nil {
		return nil, fmt.Errorf("recipe %s: %w", name, err)
	}
	return r.after(first), nil
}

// after adds r to the recipe that it extends.
func (r *Recipe) after(first *Recipe) *Recipe {
	sum := *r
	if sum.Suite == "" {
		sum.Suite = first.Suite
	}
	sum.Sources = slices.Concat(first.Sources, r.Sources)
	sum.Packages = slices.Concat(first.Packages, r.Packages)
	sum.Exclude = slices.Concat(first.Exclude, r.Exclude)
	sum.Include = slices.Concat(first.Include, r.Include)
	sum.Env = map[string]string{}
	maps.Copy(sum.Env, first.Env)
	maps.Copy(sum.Env, r.Env)
	sum.files = slices.Concat(first.files, r.files)
	sum.rounds = slices.Concat(first.rounds, r.rounds)
	sum.key = fmt.Sprintf("%x", sha256.Sum256([]byte(first.key+r.key)))
	sum.debian = &sum
	if r.onlySteps() {
		sum.debian = first.debian
	}
	return &sum
}

// onlySteps reports whether a recipe adds nothing to the Debian part of the one
// that it extends.
func (r *Recipe) onlySteps() bool {
	for _, name := range []string{"files", setupName} {
		if _, err := fs.Stat(r.files[0], name); err == nil {
			return false
		}
	}
	return r.Suite == "" && len(r.Sources)+len(r.Packages)+len(r.Exclude)+len(r.Include) == 0
}

// with is the recipe with more Debian packages. Its steps are those of r.
func (r *Recipe) with(packages []string) *Recipe {
	if len(packages) == 0 {
		return r
	}
	base := *r.debian
	base.Packages = slices.Concat(base.Packages, packages)
	base.key = fmt.Sprintf("%x", sha256.Sum256([]byte(base.key+strings.Join(packages, "\n"))))
	base.debian = &base
	more := *r
	more.debian = &base
	return &more
}

// environment returns the recipe's Env as KEY=VALUE, sorted.
func (r *Recipe) environment() []string {
	var env []string
	for _, k := range slices.Sorted(maps.Keys(r.Env)) {
		env = append(env, k+"="+r.Env[k])
	}
	return env
}

const setupName = "setup.sh"

// writeTo writes files/ and setup.sh below dir. What begins with "#!" becomes
// executable: embedded files carry no modes.
func (r *Recipe) writeTo(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "files"), 0o755); err != nil {
		return err
	}
	var setup []byte
	for _, files := range r.files {
		text, err := fs.ReadFile(files, setupName)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		setup = append(setup, text...)
		if err := writeFiles(dir, files); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, setupName), setup, 0o644)
}

func writeFiles(dir string, files fs.FS) error {
	return fs.WalkDir(files, "files", func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			if p == "files" && errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(p))
		if e.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := fs.ReadFile(files, p)
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
