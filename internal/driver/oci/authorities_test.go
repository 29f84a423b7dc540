package oci

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/truststore"
)

// ofName makes a certificate authority.
func ofName(t *testing.T, name string) []byte {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// laidOut is the names that are in both files of a sandbox's disk.
func laidOut(t *testing.T, n note) []string {
	t.Helper()
	store, err := os.ReadFile(filepath.Join(n.authoritiesDir(), "ca-certificates.p12"))
	if err != nil {
		t.Fatal(err)
	}
	certs, err := pkcs12.DecodeTrustStore(store, "")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var text []byte
	for _, c := range certs {
		names = append(names, c.Subject.CommonName)
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	if bundle, err := os.ReadFile(filepath.Join(n.authoritiesDir(), "ca-certificates.crt")); err != nil || !bytes.Contains(bundle, text) {
		t.Errorf("the bundle does not have %q: %v", names, err)
	}
	return names
}

func TestAuthorities(t *testing.T) {
	host := filepath.Join(t.TempDir(), "host.pem")
	one, same, broken := ofName(t, "One"), ofName(t, "One"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("broken")})
	write := func(parts ...[]byte) {
		t.Helper()
		if err := os.WriteFile(host, bytes.Join(parts, nil), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	create := func(a *truststore.Files) note {
		t.Helper()
		n := note{Volumes: ownRoot(t), Authorities: host, AuthoritiesDir: true}
		if err := n.layAuthorities(a); err != nil {
			t.Fatal(err)
		}
		return n
	}
	var a truststore.Files
	write(broken, one, same)
	first := create(&a)
	if got := strings.Join(laidOut(t, first), " "); got != "One One" {
		t.Errorf("the first has %q", got)
	}
	write(one, ofName(t, "Zwei\u00fc\U0001f600"))
	if got := strings.Join(laidOut(t, create(&a)), " "); got != "One Zwei\u00fc\U0001f600" {
		t.Errorf("after a change of the host's a new one has %q", got)
	}

	// What a sandbox has is its own: also what it put there for the next start.
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("of the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(first.authoritiesDir(), "ca-certificates.crt")
	for _, act := range []error{os.Remove(bundle), os.Symlink(secret, bundle), first.layAuthorities(&a)} {
		if act != nil {
			t.Fatal(act)
		}
	}
	if got, err := os.ReadFile(secret); err != nil || string(got) != "of the host" {
		t.Errorf("a link on the disk was followed: %q, %v", got, err)
	}
	if got, err := os.Readlink(bundle); err != nil || got != secret {
		t.Errorf("the sandbox's own file is now %q, %v", got, err)
	}

	write()
	if got := laidOut(t, create(&a)); len(got) != 0 {
		t.Errorf("of an empty file came %q", got)
	}
	if err := os.Remove(host); err != nil {
		t.Fatal(err)
	}
	n := note{Volumes: ownRoot(t), Authorities: host, AuthoritiesDir: true}
	if err := n.layAuthorities(&a); err == nil {
		t.Error("a file that is gone was read")
	}
}

// TestAuthoritiesOfBefore keeps the file of sandboxes that were created before
// the directory was there.
func TestAuthoritiesOfBefore(t *testing.T) {
	host := filepath.Join(t.TempDir(), "host.pem")
	if err := os.WriteFile(host, ofName(t, "One"), 0o644); err != nil {
		t.Fatal(err)
	}
	n := note{Volumes: ownRoot(t), Authorities: host}
	if err := n.layMachineFiles(); err != nil {
		t.Fatal(err)
	}
	if err := n.layAuthorities(new(truststore.Files)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(n.authoritiesDir()); !os.IsNotExist(err) {
		t.Errorf("the directory: %v", err)
	}
	for _, m := range (bundle{note: n}).shared() {
		if m.Destination == "/etc/cubby/ca-certificates.crt" && m.Source == filepath.Join(n.root(), "etc/ca-certificates.crt") {
			return
		}
	}
	t.Error("its file is not mounted")
}

func ownRoot(t *testing.T) []volume { return []volume{{Role: driver.VolumeRoot, Dir: t.TempDir()}} }
