package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	maxFileLines    = 500  // tests included
	maxPackageLines = 5000 // without tests
	maxFacadeLines  = 1500 // of internal/core itself, without tests
	maxMethods      = 40   // of a type of core and its rooms
	maxFields       = 20   // of such a type
)

// size is what was counted.
type size struct {
	what   string
	n, max int
}

// TestSizes holds files, packages and the types of core to their bounds.
func TestSizes(t *testing.T) {
	top := root(t)
	packageLines := map[string]int{}
	methods, fields := map[string]int{}, map[string]int{}
	var all []size
	for _, dir := range []string{"internal", "client", "cmd"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			name, err := filepath.Rel(top, path)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if strings.HasPrefix(string(text), "// Code generated ") {
				return nil // nobody reads it
			}
			lines, pkg := strings.Count(string(text), "\n"), filepath.ToSlash(filepath.Dir(name))
			all = append(all, size{"lines of " + name, lines, maxFileLines})
			if strings.HasSuffix(name, "_test.go") {
				return nil
			}
			packageLines[pkg] += lines
			if pkg != "internal/core" && !strings.HasPrefix(pkg, "internal/core/") {
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			count(f, pkg, methods, fields)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []struct {
		what string
		n    map[string]int
		max  int
	}{{"lines of ", packageLines, maxPackageLines}, {"methods of ", methods, maxMethods}, {"fields of ", fields, maxFields}} {
		for _, name := range slices.Sorted(maps.Keys(m.n)) {
			most := m.max
			if m.what+name == "lines of internal/core" {
				most = maxFacadeLines
			}
			all = append(all, size{m.what + name, m.n[name], most})
		}
	}
	for _, complaint := range tooLarge(all) {
		t.Error(complaint)
	}
}

// count adds the methods and the fields of a file's types.
func count(f *ast.File, pkg string, methods, fields map[string]int) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				continue
			}
			of := d.Recv.List[0].Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			if name, ok := of.(*ast.Ident); ok {
				methods[pkg+"."+name.Name]++
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				t, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if st, ok := t.Type.(*ast.StructType); ok {
					for _, field := range st.Fields.List {
						fields[pkg+"."+t.Name.Name] += max(1, len(field.Names))
					}
				}
			}
		}
	}
}

// tooLarge says what is above its bound.
func tooLarge(all []size) (bad []string) {
	for _, s := range all {
		if s.n > s.max {
			bad = append(bad, fmt.Sprintf("%s: %d, at most %d", s.what, s.n, s.max))
		}
	}
	return bad
}

func TestSizesAreComplainedAbout(t *testing.T) {
	got := tooLarge([]size{{"a", 3, 2}, {"b", 2, 2}, {"c", 1, 2}})
	if len(got) != 1 || !strings.HasPrefix(got[0], "a: 3") {
		t.Errorf("complaints: %q", got)
	}
}
