package image

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cubbyhq/cubby/images"
	"github.com/cubbyhq/cubby/internal/errs"
)

func TestEmbeddedRecipes(t *testing.T) {
	found := recipeNames(images.FS())
	if len(found) == 0 || found[0] != "base" {
		t.Fatalf("recipes = %q, want base among them", found)
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
		for _, needed := range []string{"setup.sh"} {
			if _, err := r.files.Open(needed); err != nil {
				t.Errorf("recipe %s: %v", name, err)
			}
		}
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
