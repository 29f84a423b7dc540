package instance

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

func nothing() (bool, error)   { return false, nil }
func something() (bool, error) { return true, nil }

func TestADirectoryKeepsItsIdentity(t *testing.T) {
	dir := t.TempDir()
	first, err := Of(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Of(dir, "cubby-other"); err != nil || again != first {
		t.Errorf("Of = %+v, %v; want %+v", again, err, first)
	}
	if other, err := Of(t.TempDir(), ""); err != nil || other.ID == first.ID || other.Cgroups == first.Cgroups {
		t.Errorf("another directory is %+v, %v; want other than %+v", other, err, first)
	}
	if former, err := Of(t.TempDir(), "cubby-former"); err != nil || former.Cgroups != "cubby-former" {
		t.Errorf("a directory without an identity is %+v, %v; want its former cgroups", former, err)
	}
}

func TestAMalformedIdentity(t *testing.T) {
	for _, text := range []string{"", "{}", `{"id":"../a","cgroups":"cubby-a"}`, `{"id":"a","cgroups":"a/b"}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, FileName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if is, err := Of(dir, ""); errs.KindOf(err) != errs.Unavailable {
			t.Errorf("Of with %q = %+v, %v; want unavailable", text, is, err)
		}
	}
}

func TestClaim(t *testing.T) {
	registry, original, copied := t.TempDir(), t.TempDir(), t.TempDir()
	is := New()
	claim := func(dir string, runs func() (bool, error)) *Claim {
		t.Helper()
		c, err := is.Claim(registry, dir, runs)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	refused := func(want string) {
		t.Helper()
		_, err := is.Claim(registry, copied, something)
		if !errors.Is(err, errs.Conflict) || !strings.Contains(err.Error(), want) {
			t.Errorf("the claim of the copy = %v, want a conflict that says %q", err, want)
		}
	}
	end := func(c *Claim) {
		t.Helper()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	c := claim(original, something)
	refused("this data directory is a copy of " + original + ", which another daemon uses")
	end(c)
	refused("is a copy of " + original + ", whose sandboxes still run")
	// The sandboxes of a directory that was moved are its own.
	moved := filepath.Join(filepath.Dir(original), "moved")
	if err := os.Rename(original, moved); err != nil {
		t.Fatal(err)
	}
	end(claim(moved, something))
	end(claim(moved, nothing))
	if left, err := os.ReadDir(registry); err != nil || len(left) > 0 {
		t.Errorf("left of what nobody uses: %v, %v", left, err)
	}
	end(claim(copied, something))
}
