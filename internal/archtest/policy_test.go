package archtest

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxLines   = 500
	minDocWord = 8 // fewer cannot say what a package is for
)

// emptyNames say nothing about what a package gives.
var emptyNames = regexp.MustCompile(`(?i)^(base|common|helpers?|lib|managers?|misc|models?|shared|types|utils?)$|(util|utils|helper|helpers|manager)$`)

func TestPackages(t *testing.T) {
	for _, p := range packages(t) {
		if generated(p.path()) {
			continue
		}
		if emptyNames.MatchString(p.Name) || emptyNames.MatchString(filepath.Base(p.path())) {
			t.Errorf("%s: a package is named by what it gives", p.path())
		}
		if len(p.GoFiles) > 0 && len(strings.Fields(packageDoc(t, p))) < minDocWord {
			t.Errorf("%s: the package comment does not say what it is for and what it refuses", p.path())
		}
	}
}

// packageDoc returns the whole package comment; `go list` has one sentence.
func packageDoc(t *testing.T, p pkg) string {
	t.Helper()
	var doc string
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		doc += f.Doc.Text()
	}
	return doc
}

// goFiles calls check with every Go file that somebody wrote.
func goFiles(t *testing.T, check func(path string, text []byte)) {
	t.Helper()
	dir := root(t)
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if d.IsDir() {
			hidden := path != "." && strings.HasPrefix(d.Name(), ".")
			if hidden || path == filepath.Join("api", "gen") || d.Name() == "testdata" || d.Name() == "node_modules" {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err == nil {
			check(path, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFiles(t *testing.T) {
	todo := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)
	tracked := regexp.MustCompile(`\bTO` + `DO\(#\d+\): `)
	goFiles(t, func(path string, text []byte) {
		if n := bytes.Count(text, []byte("\n")); n > maxLines && !bytes.HasPrefix(text, []byte("// Code generated ")) {
			t.Errorf("%s has %d lines: split it by concept, %d at most", path, n, maxLines)
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		for _, group := range f.Comments {
			for line := range strings.Lines(group.Text()) {
				if todo.MatchString(line) && !tracked.MatchString(line) {
					t.Errorf("%s: %q names no issue: %s(#n): …", path, strings.TrimSpace(line), "TO"+"DO")
				}
			}
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s has an init function: what happens at start is written in a main", path)
			}
		}
	})
}

func TestGoMod(t *testing.T) {
	var mod struct {
		Replace []struct{ Old, New struct{ Path string } }
		Exclude []struct{ Path string }
	}
	if err := json.Unmarshal([]byte(command(t, "mod", "edit", "-json")), &mod); err != nil {
		t.Fatal(err)
	}
	// The SDK is a module of this repository (docs/adr/0017).
	for _, r := range mod.Replace {
		if r.Old.Path != module+"client" || r.New.Path != "./client" {
			t.Errorf("go.mod replaces %s by %s: only the SDK's module is in this repository", r.Old.Path, r.New.Path)
		}
	}
	for _, e := range mod.Exclude {
		t.Errorf("go.mod excludes %s", e.Path)
	}
}

// TestClientMod: the SDK asks no newer Go of its users than docs/api.md says, and
// few other modules.
func TestClientMod(t *testing.T) {
	var mod struct {
		Go      string
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []struct{ Old struct{ Path string } }
	}
	if err := json.Unmarshal([]byte(command(t, "mod", "edit", "-json", "client/go.mod")), &mod); err != nil {
		t.Fatal(err)
	}
	if mod.Go != "1.24.0" || len(mod.Replace) > 0 {
		t.Errorf("client/go.mod: go %s and %d replacements, want 1.24.0 and none", mod.Go, len(mod.Replace))
	}
	// The last two are of its tests alone.
	known := []string{"github.com/coder/websocket", "github.com/google/go-cmp", "go.uber.org/goleak"}
	for _, r := range mod.Require {
		if !slices.Contains(known, r.Path) {
			t.Errorf("client/go.mod requires %s: users of the SDK get it too", r.Path)
		}
	}
}

func TestEmptyNames(t *testing.T) {
	for name, want := range map[string]bool{
		"util": true, "utils": true, "stringutil": true, "helper": true, "common": true, "manager": true, "taskmanager": true,
		"types": true, "core": false, "sandbox": false, "driver": false, "store": false, "journal": false,
	} {
		if got := emptyNames.MatchString(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
