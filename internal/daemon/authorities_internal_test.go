package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAuthoritiesOfTheDaemon(t *testing.T) {
	own := filepath.Join(t.TempDir(), "own.pem")
	if err := os.WriteFile(own, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	with := func(path string) string { return authorities(func(string) string { return path }) }
	system := with("")
	for path, want := range map[string]string{own: own, own + ".gone": system, filepath.Dir(own): system, "authorities.go": system} {
		if got := with(path); got != want {
			t.Errorf("with SSL_CERT_FILE=%s they are %q, want %q", path, got, want)
		}
	}
}
