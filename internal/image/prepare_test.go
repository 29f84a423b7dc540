package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
)

// stepped are recipes with steps: high and packed extend low.
func stepped() fstest.MapFS {
	return fstest.MapFS{
		"low/image.toml":    {Data: []byte("suite = \"s\"\nsources = [\"deb u\"]\npackages = [\"a\"]\nnpm = [\"n\"]\n")},
		"high/image.toml":   {Data: []byte("extends = \"low\"\npip = [\"p==1\"]\nrun = [\"true\"]\nallow = [\"h.example\"]\n[env]\nA = \"1\"\n")},
		"packed/image.toml": {Data: []byte("extends = \"low\"\npackages = [\"b\"]\n")},
	}
}

func TestStepsOfRecipes(t *testing.T) {
	r, err := loadRecipe(stepped(), "high")
	if err != nil {
		t.Fatal(err)
	}
	want := []Steps{{NPM: []string{"n"}}, {PIP: []string{"p==1"}, Run: []string{"true"}, Allow: []string{"h.example"}}}
	if diff := cmp.Diff(want, r.rounds); diff != "" || r.debian.name != "low" {
		t.Errorf("the Debian part is %s's; rounds (-want +got):\n%s", r.debian.name, diff)
	}
	if r, err = loadRecipe(stepped(), "packed"); err != nil || r.debian != r || len(r.rounds) != 1 {
		t.Errorf("packed = %+v, %v, want a Debian part of its own and the steps of low", r, err)
	}
	more := r.with([]string{"c"})
	if !slices.Equal(more.debian.Packages, []string{"a", "b", "c"}) || more.debian.key == r.key || len(r.Packages) != 2 {
		t.Errorf("with c it has %q, and %q as before", more.debian.Packages, r.Packages)
	}
	bad := fstest.MapFS{"x/image.toml": {Data: []byte("suite = \"s\"\nnpm = [\"--prefix=/\"]\n")}}
	if _, err := loadRecipe(bad, "x"); err == nil {
		t.Error("a recipe with an option for a package was taken")
	}
}

// A package is never an option, a path, a URL or a file.
func TestPackagesAreChecked(t *testing.T) {
	for _, p := range []string{"six", "six==1.16.0", "uvicorn[standard]>=0.1,<2", "zope.interface"} {
		if err := (Steps{PIP: []string{p}}).check(); err != nil {
			t.Errorf("pip %q: %v", p, err)
		}
	}
	for _, p := range []string{"lodash", "lodash@^4.17", "@types/node@20.1.0", "amd64:x@1", "typescript@latest"} {
		if err := (Steps{NPM: []string{p}}).check(); err != nil {
			t.Errorf("npm %q: %v", p, err)
		}
	}
	for _, p := range []string{"", "-rfoo", "--index-url=http://x", ".", "./x", "/etc", "..", "a/b", "git+https://x/y", "https://x/y.whl", "x @ file:///etc", "a;b", "a\nb", "a b\x00", "@a/b/c", strings.Repeat("x", maxPackage+1), "amd64:-x"} {
		for what, err := range map[string]error{"pip": (Steps{PIP: []string{p}}).check(), "npm": (Steps{NPM: []string{p}}).check(), "apt": checkPackages("apt", []string{p}, ".+-")} {
			if !errors.Is(err, errs.Invalid) {
				t.Errorf("%s %.40q = %v, want invalid", what, p, err)
			}
		}
	}
	for name, s := range map[string]Steps{
		"a command without text": {Run: []string{" "}}, "hosts without a command": {PIP: []string{"x"}, Allow: []string{"h"}},
		"too many commands": {Run: slices.Repeat([]string{"true"}, maxCommands+1)}, "too many packages": {PIP: slices.Repeat([]string{"x"}, maxPackages+1)},
	} {
		if err := s.check(); !errors.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

func TestPrepareFrom(t *testing.T) {
	s := openStore(t, t.TempDir())
	img := importRoot(t, s, "one", "1")
	run := Steps{NPM: []string{"amd64:a", "arm64:b", "c"}, Run: []string{"true"}}
	b, err := s.Prepare(t.Context(), BuildRequest{Name: "mine", From: "one", Steps: run}, nil)
	if err != nil {
		t.Fatal(err)
	}
	here := map[string]string{"amd64": "a", "arm64": "b"}[runtime.GOARCH]
	if b.Image.Digest != img.Digest || len(b.Steps) != 1 || !slices.Equal(b.Steps[0].NPM, []string{here, "c"}) {
		t.Errorf("Prepare = %+v", b)
	}
	if diff := cmp.Diff(&Definition{Image: img.Digest, Steps: []Steps{run}}, b.about.definition); diff != "" {
		t.Errorf("the definition (-want +got):\n%s", diff)
	}
	for name, tt := range map[string]struct {
		request BuildRequest
		want    errs.Kind
	}{
		"a recipe's name":                      {BuildRequest{Name: "base", From: "one", Steps: run}, errs.Conflict},
		"no such image":                        {BuildRequest{Name: "mine", From: "two", Steps: run}, errs.NotFound},
		"apt in an image without a recipe":     {BuildRequest{Name: "mine", From: "one", Apt: []string{"jq"}}, errs.Unsupported},
		"nothing to add":                       {BuildRequest{Name: "mine", From: "one"}, errs.Invalid},
		"packages without an image":            {BuildRequest{Name: "base", Steps: run}, errs.Invalid},
		"a malformed name":                     {BuildRequest{Name: "../x", From: "one", Steps: run}, errs.Invalid},
		"no such recipe":                       {BuildRequest{Name: "nothing"}, errs.NotFound},
		"apt with a version that is an option": {BuildRequest{Name: "mine", From: "one", Apt: []string{"--x"}}, errs.Invalid},
	} {
		if _, err := s.Prepare(t.Context(), tt.request, nil); !errors.Is(err, tt.want) {
			t.Errorf("%s: Prepare = %v, want %v", name, err, tt.want)
		}
	}
}

// An image that was built from another one knows everything that it was made
// of, and begins where that one ends.
func TestDefinitionsAddUp(t *testing.T) {
	s := openStore(t, t.TempDir())
	one := importRoot(t, s, "one", "1")
	system := tarOf(t, file{name: "usr/bin/sh", body: "2"}, file{name: "etc/passwd", body: "root"})
	for i, name := range []string{"two", "three"} {
		b, err := s.Prepare(t.Context(), BuildRequest{Name: name, From: []string{"one", "two"}[i], Steps: Steps{Run: []string{name}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		made, err := s.ImportSystem(t.Context(), bytes.NewReader(append([]byte(nil), system...)), b, nil)
		if err != nil || made.Name != name || made.Definition.Image != one.Digest || len(made.Definition.Steps) > 2 {
			t.Fatalf("%s = %+v, %v", name, made, err)
		}
		system = tarOf(t, file{name: "usr/bin/sh", body: "3"}, file{name: "etc/passwd", body: "root"})
	}
	three, err := s.Resolve(t.Context(), "three")
	if err != nil || len(three.Definition.Steps) != 2 || three.Definition.Steps[1].Run[0] != "three" || three.Source != "build three from two" {
		t.Errorf("three = %+v, %v", three, err)
	}
}

// What a sandbox gives for its root filesystem leads nowhere but into the image.
func TestASystemStaysInItsImage(t *testing.T) {
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	if err := os.WriteFile(victim, []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string][]file{
		"a link and a file behind it":     {{name: "x", link: outside, kind: tar.TypeSymlink}, {name: "x/victim", body: "evil"}},
		"a relative link":                 {{name: "x", link: strings.Repeat("../", 40) + outside[1:], kind: tar.TypeSymlink}, {name: "x/victim", body: "evil"}},
		"a mounted file that is a link":   {{name: "etc/hosts", link: victim, kind: tar.TypeSymlink}},
		"a mounted file's directory":      {{name: "etc", link: outside, kind: tar.TypeSymlink}, {name: "sbin", link: outside, kind: tar.TypeSymlink}},
		"the agent's profile":             {{name: "etc/profile.d", link: outside, kind: tar.TypeSymlink}},
		"a hard link to the outside":      {{name: "x", link: outside, kind: tar.TypeSymlink}, {name: "y", link: "x/victim", kind: tar.TypeLink}},
		"dots":                            {{name: "../victim", body: "evil"}},
		"a mount target that is a link":   {{name: "workspace", link: outside, kind: tar.TypeSymlink}, {name: "home", link: outside, kind: tar.TypeSymlink}},
		"a file in the place of a parent": {{name: "usr/sbin", body: "x"}, {name: "sbin", link: "usr/sbin", kind: tar.TypeSymlink}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, t.TempDir())
			importRoot(t, s, "one", "1")
			b, err := s.Prepare(t.Context(), BuildRequest{Name: "mine", From: "one", Steps: Steps{Run: []string{"true"}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.ImportSystem(t.Context(), bytes.NewReader(tarOf(t, append(files, file{name: "usr/bin/sh", body: "1"})...)), b, nil)
			if err != nil && !errors.Is(err, errs.Invalid) {
				t.Errorf("ImportSystem = %v, want an image or invalid", err)
			}
			entries, readErr := os.ReadDir(outside)
			if text, _ := os.ReadFile(victim); readErr != nil || string(text) != "untouched" || len(entries) != 1 {
				t.Errorf("outside there are %v with %q, %v", entries, text, readErr)
			}
			if left, _ := filepath.Glob(filepath.Join(s.dir, tmpPrefix+"*")); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}
