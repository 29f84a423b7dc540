package oci

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
)

// authorities are the files of certificate authorities that sandboxes get, made
// from one of the host's. They are made again when that one has changed.
type authorities struct {
	mu    sync.Mutex
	path  string
	at    time.Time
	size  int64
	files map[string][]byte // by name in [driver.AuthoritiesDir]
}

// of returns the files that say the same as path. They are not to be changed.
func (a *authorities) of(path string) (map[string][]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	info, err := os.Stat(path)
	if err == nil && a.path == path && a.at.Equal(info.ModTime()) && a.size == info.Size() {
		return a.files, nil
	}
	var bundle, store []byte
	if err == nil {
		bundle, err = os.ReadFile(path)
	}
	if err == nil {
		store, err = trustStore(bundle)
	}
	if err != nil {
		return nil, errs.E(errs.Unavailable, "the host's certificate authorities cannot be read").Because(err)
	}
	a.path, a.at, a.size = path, info.ModTime(), info.Size()
	a.files = map[string][]byte{
		filepath.Base(driver.AuthoritiesPath): bundle,
		filepath.Base(driver.TrustStorePath):  store,
	}
	return a.files, nil
}

// trustStore makes a PKCS #12 file of the certificates in a PEM file, as Java
// reads it: without a password, since it has no secret. What Go cannot read as
// a certificate is left out.
func trustStore(bundle []byte) ([]byte, error) {
	var entries []pkcs12.TrustStoreEntry
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		entries = append(entries, pkcs12.TrustStoreEntry{Cert: cert, FriendlyName: alias(cert)})
	}
	return pkcs12.Passwordless.EncodeTrustStoreEntries(entries, "")
}

// alias names a certificate in the store, where of two with one name Java keeps
// one.
func alias(cert *x509.Certificate) string {
	name := cert.Subject.CommonName
	if name == "" {
		name = strings.Join(cert.Subject.Organization, " ")
	}
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
	sum := sha256.Sum256(cert.Raw)
	return fmt.Sprintf("%.100s %x", name, sum[:8])
}

// layAuthorities writes the files to the disk, where the sandbox's root may
// change them within its quota. A directory that is there already is the
// sandbox's: nothing in it is read or written.
func (n note) layAuthorities(a *authorities) error {
	if n.Authorities == "" || !n.AuthoritiesDir {
		return nil
	}
	dir := n.authoritiesDir()
	if _, err := os.Lstat(dir); err == nil {
		return nil
	}
	files, err := a.of(n.Authorities)
	if err != nil {
		return err
	}
	// It appears whole: a start after a crash would take half of it for all.
	fresh := dir + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.MkdirAll(fresh, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(fresh, name)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
		if err := os.Chmod(path, 0o644); err != nil { // whatever the umask is
			return err
		}
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	return os.Rename(fresh, dir)
}

func (n note) authoritiesDir() string { return filepath.Join(n.root(), "etc/cubby") }
