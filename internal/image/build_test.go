package image

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/images"
	"github.com/cubbyhq/cubby/internal/errs"
)

func TestEmbeddedRecipes(t *testing.T) {
	found := recipeNames(images.FS())
	if !slices.Contains(found, "base") || !slices.Contains(found, "r") {
		t.Fatalf("recipes = %q, want base and r among them", found)
	}
	for _, name := range found {
		r, err := loadRecipe(images.FS(), name)
		if err != nil {
			t.Errorf("loadRecipe(%s) = %v", name, err)
			continue
		}
		if r.Suite == "" || len(r.Packages) == 0 || len(r.environment()) == 0 {
			t.Errorf("recipe %s = %+v, want a suite, packages and an environment", name, r)
		}
		if urls, err := r.releaseURLs(); err != nil || len(urls) != len(r.Sources) {
			t.Errorf("release files of %s: %q, %v", name, urls, err)
		}
		if err := r.writeTo(t.TempDir()); err != nil {
			t.Errorf("recipe %s: %v", name, err)
		}
	}
}

// A build of a recipe gives the same programs whenever it is run.
func TestStepsOfBuiltInRecipesArePinned(t *testing.T) {
	pinned := regexp.MustCompile(`^(amd64:|arm64:)?(@?[^@=]+@[0-9][^ ]*|[^@=]+==[0-9.]+)$`)
	steps := 0
	for _, name := range Recipes() {
		r, err := loadRecipe(images.FS(), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, round := range r.rounds {
			steps++
			for _, p := range slices.Concat(round.NPM, round.PIP) {
				if !pinned.MatchString(p) {
					t.Errorf("recipe %s: %s has no version", name, p)
				}
			}
		}
	}
	if steps == 0 {
		t.Error("no recipe has steps")
	}
}

func TestRecipeErrors(t *testing.T) {
	_, err := loadRecipe(images.FS(), "nothing")
	if !errors.Is(err, errs.NotFound) || !strings.Contains(errs.Public(err).Hint, "base") {
		t.Errorf("loadRecipe(nothing) = %v, want not found with the names", err)
	}
	for _, text := range []string{"suite = 1", "unknown = true", "suite ="} {
		dir := fstest.MapFS{"x/image.toml": {Data: []byte(text)}}
		if _, err := loadRecipe(dir, "x"); err == nil {
			t.Errorf("loadRecipe of %q = nil, want an error", text)
		}
	}
}

// A recipe that extends another has all that the other has, and its own on top.
func TestExtends(t *testing.T) {
	dir := fstest.MapFS{
		"low/image.toml":   {Data: []byte("suite = \"s\"\nsources = [\"deb u\"]\npackages = [\"a\"]\nexclude = [\"x\"]\n[env]\nA = \"low\"\nB = \"low\"\n")},
		"low/setup.sh":     {Data: []byte("echo low\n")},
		"low/files/one":    {Data: []byte("low")},
		"low/files/two":    {Data: []byte("low")},
		"high/image.toml":  {Data: []byte("extends = \"low\"\npackages = [\"b\"]\n[env]\nB = \"high\"\n")},
		"high/setup.sh":    {Data: []byte("echo high\n")},
		"high/files/two":   {Data: []byte("#!high")},
		"round/image.toml": {Data: []byte("extends = \"other\"\n")},
		"other/image.toml": {Data: []byte("extends = \"round\"\n")},
		"lost/image.toml":  {Data: []byte("extends = \"nowhere\"\n")},
	}
	r, err := loadRecipe(dir, "high")
	if err != nil {
		t.Fatal(err)
	}
	got := []any{r.name, r.Suite, r.Sources, r.Packages, r.Exclude, r.environment()}
	want := []any{"high", "s", []string{"deb u"}, []string{"a", "b"}, []string{"x"}, []string{"A=low", "B=high"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the recipe (-want +got):\n%s", diff)
	}
	to := t.TempDir()
	if err := r.writeTo(to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"setup.sh": "echo low\necho high\n", "files/one": "low", "files/two": "#!high"} {
		if text, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(text) != want {
			t.Errorf("%s = %q, %v, want %q", name, text, err, want)
		}
	}
	key := r.key
	dir["low/files/one"] = &fstest.MapFile{Data: []byte("changed")}
	if r, err = loadRecipe(dir, "high"); err != nil || r.key == key {
		t.Errorf("the key is the same after a change of the extended recipe: %v", err)
	}
	for _, name := range []string{"round", "lost"} {
		if _, err := loadRecipe(dir, name); err == nil {
			t.Errorf("loadRecipe(%s) = nil, want an error", name)
		}
	}
}

// What apt and dpkg print becomes steps that only go forward.
func TestBuildWatch(t *testing.T) {
	var steps []Step
	w := buildWatch{progress: func(s Step) { steps = append(steps, s) }}
	for line := range strings.Lines(`I: running apt-get update...
Get:1 http://deb.debian.org/debian trixie InRelease [140 kB]
0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.
Get:1 http://deb.debian.org/debian trixie/main amd64 base-files amd64 13 [70 kB]
Get:2 http://deb.debian.org/debian trixie/main amd64 bash amd64 5 [1 kB]
0 upgraded, 200 newly installed, 0 to remove and 0 not upgraded.
0 upgraded, 200 newly installed, 0 to remove and 0 not upgraded.
Unpacking base-files (13) ...
Setting up base-files (13) ...
Unpacking bash (5) ...
99999999999999999999999 newly installed
`) {
		w.line(strings.TrimSuffix(line, "\n"))
	}
	if w.total != 202 || w.fetched != 2 || w.steps != 3 {
		t.Errorf("total %d, fetched %d, steps %d; want 202, 2, 3", w.total, w.fetched, w.steps)
	}
	var last Step
	for _, s := range steps {
		if s.Stage == last.Stage && s.Done < last.Done {
			t.Errorf("progress goes back: %+v after %+v", s, last)
		}
		last = s
	}
}
