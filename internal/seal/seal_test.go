package seal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

func TestSealAndOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seal.key")
	k, err := OpenKey(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenKey(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v", info, err)
	}
	for _, secret := range []string{"", "s3cret", strings.Repeat("x", 1<<20)} {
		text := k.Seal("here", []byte(secret))
		if !Sealed(text) || secret != "" && strings.Contains(text, secret) {
			t.Errorf("Seal = %.80q", text)
		}
		if text == k.Seal("here", []byte(secret)) {
			t.Error("the same secret is sealed the same way twice")
		}
		if got, err := again.Open("here", text); err != nil || !bytes.Equal(got, []byte(secret)) {
			t.Errorf("Open = %.80q, %v", got, err)
		}
		other, err := NewKey()
		if err != nil {
			t.Fatal(err)
		}
		for what, open := range map[string]func() ([]byte, error){
			"another place": func() ([]byte, error) { return k.Open("there", text) },
			"another key":   func() ([]byte, error) { return other.Open("here", text) },
			"cut":           func() ([]byte, error) { return k.Open("here", text[:len(text)-8]) },
			"not sealed":    func() ([]byte, error) { return k.Open("here", `{"A":"b"}`) },
		} {
			if got, err := open(); !errors.Is(err, errs.Internal) || len(got) > 0 {
				t.Errorf("%s: Open = %.80q, %v", what, got, err)
			}
		}
	}
}

func TestDamagedKeyFileIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seal.key")
	for _, text := range []string{"", "abcd", strings.Repeat("z", 64)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenKey(path); !errors.Is(err, errs.Internal) {
			t.Errorf("OpenKey of %q = %v", text, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("the file became %q, %v", got, err)
		}
	}
	if _, err := OpenKey(filepath.Join(path, "x")); !errors.Is(err, errs.Unavailable) {
		t.Errorf("OpenKey in no directory = %v", err)
	}
}
