package values_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/cli/values"
)

func TestSize(t *testing.T) {
	tests := []struct {
		in   string
		want int64
	}{
		{"1024", 1024}, {"512MiB", 512 << 20}, {"512m", 512 << 20}, {"2g", 2 << 30}, {"2G", 2 << 30}, {"1GB", 1e9}, {"1.5g", 3 << 29},
	}
	for _, tt := range tests {
		var b values.Size
		if err := b.Set(tt.in); err != nil || int64(b) != tt.want {
			t.Errorf("Set(%q) = %d, %v, want %d", tt.in, b, err, tt.want)
		}
	}
	for _, in := range []string{"", "g", "-1m", "1x", "m5"} {
		var b values.Size
		if err := b.Set(in); err == nil {
			t.Errorf("Set(%q) = %d, want an error", in, b)
		}
	}
}

func TestEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("# comment\n\nA=file\nB=file=b\nHOME\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"HOME": "/root", "TERM": "xterm"}[name]
		return v, ok
	}
	got, err := values.Environment(lookup, []string{"A=flag", "TERM", "MISSING", "E="}, []string{file})
	want := map[string]string{"A": "flag", "B": "file=b", "HOME": "/root", "TERM": "xterm", "E": ""}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if _, err := values.Environment(lookup, []string{"=x"}, nil); err == nil {
		t.Error("a variable without a name was taken")
	}
}
