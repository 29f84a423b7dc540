// Package truststore makes the files of certificate authorities that sandboxes get, in the
// forms that their programs read, out of the host's. It trusts none that the host does
// not.
package truststore

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

// Files are made from one file of the host. They are made again when that one has
// changed. Safe for concurrent use.
type Files struct {
	mu    sync.Mutex
	path  string
	at    time.Time
	size  int64
	files map[string][]byte // by name in [driver.AuthoritiesDir]
}

// Of returns the files that say the same as path. They are not to be changed.
func (f *Files) Of(path string) (map[string][]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(path)
	if err == nil && f.path == path && f.at.Equal(info.ModTime()) && f.size == info.Size() {
		return f.files, nil
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
	f.path, f.at, f.size = path, info.ModTime(), info.Size()
	f.files = map[string][]byte{
		filepath.Base(driver.AuthoritiesPath): bundle,
		filepath.Base(driver.TrustStorePath):  store,
	}
	return f.files, nil
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
