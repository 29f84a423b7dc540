package store

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/seal"
)

func setSecret(t *testing.T, s *Store, tenant, name, value string) Secret {
	t.Helper()
	set, err := s.SetSecret(t.Context(), tenant, name, value, 100)
	if err != nil {
		t.Fatalf("SetSecret %q %s: %v", tenant, name, err)
	}
	return set
}

func TestSecrets(t *testing.T) {
	s, c := fresh(t)
	ctx := t.Context()
	b := setSecret(t, s, "acme", "B_KEY", "first")
	if want := (Secret{"acme", "B_KEY", c.Now().Truncate(time.Microsecond)}); b != want {
		t.Errorf("SetSecret = %+v, want %+v", b, want)
	}
	c.advance(time.Minute)
	a := setSecret(t, s, "acme", "A_KEY", strings.Repeat("x", 32<<10))
	b = setSecret(t, s, "acme", "B_KEY", "second\n")
	none := setSecret(t, s, "", "B_KEY", "of no tenant")

	for tenant, want := range map[string][]Secret{"acme": {a, b}, "": {none}, "Acme": nil} {
		if got, err := s.Secrets(ctx, tenant); err != nil || !slices.Equal(got, want) {
			t.Errorf("Secrets of %q = %+v, %v, want %+v", tenant, got, err, want)
		}
	}
	for tenant, want := range map[string]map[string]string{
		"acme": {"B_KEY": "second\n"}, "": {"B_KEY": "of no tenant"}, "Acme": {},
	} {
		if got, err := s.SecretValues(ctx, tenant, []string{"B_KEY", "NONE"}); err != nil || !maps.Equal(got, want) {
			t.Errorf("SecretValues of %q = %q, %v, want %q", tenant, got, err, want)
		}
	}
	if got, err := s.SecretValues(ctx, "acme", nil); err != nil || len(got) > 0 {
		t.Errorf("SecretValues of no names = %q, %v", got, err)
	}

	if err := s.RemoveSecret(ctx, "acme", "B_KEY"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "RemoveSecret again", s.RemoveSecret(ctx, "acme", "B_KEY"), errs.NotFound)
	if got, err := s.SecretValues(ctx, "acme", []string{"A_KEY", "B_KEY"}); err != nil || len(got) != 1 {
		t.Errorf("after RemoveSecret %d values, %v", len(got), err)
	}
	if got, err := s.Secrets(ctx, ""); err != nil || len(got) != 1 {
		t.Errorf("RemoveSecret of another tenant left %+v, %v", got, err)
	}
}

// TestSecretsOfATenantAreBounded: what is there can be set again all the same.
func TestSecretsOfATenantAreBounded(t *testing.T) {
	s, _ := fresh(t)
	set := func(tenant, name string) error {
		_, err := s.SetSecret(t.Context(), tenant, name, "v", 3)
		return err
	}
	for i := range 3 {
		if err := set("acme", fmt.Sprintf("K%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	wantKind(t, "a fourth", set("acme", "K3"), errs.OverQuota)
	wantKind(t, "one of the three", set("acme", "K1"), nil)
	wantKind(t, "one of another tenant", set("", "K3"), nil)
	if err := s.RemoveSecret(t.Context(), "acme", "K0"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "a third", set("acme", "K3"), nil)
}

// TestCopiedSecretIsNotOpened: who can write to the database and has no key
// cannot give one tenant the secret of another, or one secret another's name.
func TestCopiedSecretIsNotOpened(t *testing.T) {
	s, _ := fresh(t)
	setSecret(t, s, "acme", "KEY", "hush-5be00d21")
	for _, to := range []struct{ tenant, name string }{{"beta", "KEY"}, {"", "KEY"}, {"acme", "OTHER"}} {
		if err := s.update(t.Context(), durable, func(x *tx) error {
			_, err := x.exec(`INSERT INTO secrets (tenant, name, value, updated_at)
				SELECT $1, $2, value, updated_at FROM secrets WHERE tenant = 'acme' AND name = 'KEY'`, to.tenant, to.name)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		got, err := s.SecretValues(t.Context(), to.tenant, []string{to.name})
		wantKind(t, fmt.Sprintf("SecretValues of the copy %v (%q)", to, got), err, errs.Internal)
		list, err := s.Secrets(t.Context(), to.tenant)
		wantKind(t, fmt.Sprintf("Secrets with the copy %v (%v)", to, list), err, errs.Internal)
	}
}

// TestSecretsWithAnotherKeyAreNotEmpty: what cannot be opened is an error, which
// names the secret and not its value. Setting it again and removing it helps.
func TestSecretsWithAnotherKeyAreNotEmpty(t *testing.T) {
	where := somewhere(t)
	s := openAt(t, where, newClock())
	setSecret(t, s, "acme", "A", "hush-5be00d21")
	setSecret(t, s, "acme", "B", "hush-5be00d21")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other, err := seal.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	where.Seal, where.Now = other, newClock().Now
	s, err = Open(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	list, err := s.Secrets(t.Context(), "acme")
	if wantKind(t, fmt.Sprintf("Secrets (%v)", list), err, errs.Internal); err != nil {
		if info := errs.Public(err); info.Message != "the secret A cannot be opened" || info.Hint == "" {
			t.Errorf("the error is %+v", info)
		}
	}
	values, err := s.SecretValues(t.Context(), "acme", []string{"B"})
	wantKind(t, fmt.Sprintf("SecretValues (%q)", values), err, errs.Internal)

	setSecret(t, s, "acme", "A", "new")
	if err := s.RemoveSecret(t.Context(), "acme", "B"); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Secrets(t.Context(), "acme"); err != nil || len(list) != 1 {
		t.Errorf("afterwards Secrets = %+v, %v", list, err)
	}
}

// TestSecretsAreStoredSealed looks for a value in the raw files, also after it is
// replaced and removed.
func TestSecretsAreStoredSealed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "cubby.db"), newClock())
	look := func(after string) {
		t.Helper()
		files, err := os.ReadDir(dir)
		if err != nil || len(files) == 0 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		for _, f := range files {
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "hush-5be00d21") {
				t.Errorf("after %s the value is in %s", after, f.Name())
			}
		}
	}
	setSecret(t, s, "acme", "KEY", "hush-5be00d21")
	look("SetSecret")
	var sealed string
	if err := s.reads.Row(t.Context(), `SELECT value FROM secrets`).Scan(&sealed); err != nil || !seal.Sealed(sealed) {
		t.Errorf("the column is %q, %v", sealed, err)
	}
	if err := s.RemoveSecret(t.Context(), "acme", "KEY"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	look("RemoveSecret and Close")
}
