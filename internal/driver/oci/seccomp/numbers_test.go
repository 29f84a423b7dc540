package seccomp

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the tables of system calls and the compiled filters")

// unixNumbers reads the system calls that golang.org/x/sys/unix knows on an
// architecture.
func unixNumbers(t *testing.T, arch string) map[string]uint32 {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+arch+".go")
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]uint32{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			call, ok := strings.CutPrefix(name.Name, "SYS_")
			if !ok || i >= len(spec.Values) {
				continue
			}
			value, ok := spec.Values[i].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s: %s has no number", file, name.Name)
			}
			number, err := strconv.ParseUint(value.Value, 0, 32)
			if err != nil {
				t.Fatal(err)
			}
			calls[strings.ToLower(call)] = uint32(number)
		}
		return true
	})
	return calls
}

// table is the Go file that gives an architecture's numbers.
func table(t *testing.T, calls map[string]uint32) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("// Code generated from golang.org/x/sys/unix by make generate. DO NOT EDIT.\n\npackage seccomp\n\n" +
		"import \"golang.org/x/sys/unix\"\n\n// numbers are the numbers of all system calls, by the kernel's name.\n" +
		"func numbers() map[string]uint32 {\nreturn map[string]uint32{\n")
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		fmt.Fprintf(&b, "%q: unix.SYS_%s,\n", name, strings.ToUpper(name))
	}
	b.WriteString("}\n}\n")
	text, err := format.Source(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// sameOrUpdate compares what is generated with its file, or writes it.
func sameOrUpdate(t *testing.T, file string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what is generated now; if that is meant: go test ./internal/driver/oci/seccomp -update", file)
	}
}

// The tables are those of the x/sys that is built in.
func TestNumbers(t *testing.T) {
	for arch := range arches() {
		calls := unixNumbers(t, arch)
		if len(calls) < 300 {
			t.Errorf("%s has %d system calls", arch, len(calls))
		}
		sameOrUpdate(t, "numbers_"+arch+".go", table(t, calls))
	}
}

// The policy speaks of calls that some kernel has: a name that is mistyped would
// be denied everywhere and unnoticed.
func TestPolicyNamesCalls(t *testing.T) {
	known := map[string]bool{}
	for arch := range arches() {
		for name := range unixNumbers(t, arch) {
			known[name] = true
		}
	}
	names := strings.Fields(allowedCalls + deniedCalls)
	for _, r := range rules {
		names = append(names, r.call)
	}
	for _, name := range names {
		if !known[name] {
			t.Errorf("no architecture has a call %s", name)
		}
	}
}

// What the kernel is given changes when the policy does. A newer x/sys that changes
// it too is seen here.
func TestCompiledFilters(t *testing.T) {
	for arch, m := range arches() {
		m.numbers = unixNumbers(t, arch)
		sameOrUpdate(t, filepath.Join("testdata", "filter-"+arch+".txt"), []byte(encode(m.compile())+"\n"))
	}
}
