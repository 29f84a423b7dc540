package daemon

import (
	"crypto/tls"
	"os"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// serverTLS returns nil without files; keys are what they are called in the
// configuration. A renewed certificate is taken up
// without a restart.
func serverTLS(keys, certFile, keyFile string) (*tls.Config, error) {
	if certFile == "" {
		return nil, nil //nolint:nilnil // no TLS is a configuration
	}
	c := &certificate{certFile: certFile, keyFile: keyFile}
	if _, err := c.get(nil); err != nil {
		return nil, errs.E(errs.Invalid, "%s: %v", keys, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get, NextProtos: []string{"h2", "http/1.1"}}, nil
}

// certificate is a pair of files that somebody may replace.
type certificate struct {
	certFile, keyFile string

	mu     sync.Mutex
	loaded *tls.Certificate // guarded by mu
	at     time.Time        // modification time of certFile when loaded; guarded by mu
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := os.Stat(c.certFile)
	if err == nil && (c.loaded == nil || !info.ModTime().Equal(c.at)) {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(c.certFile, c.keyFile); err == nil {
			c.loaded, c.at = &pair, info.ModTime()
		}
	}
	if c.loaded != nil {
		return c.loaded, nil // half-replaced files: the old pair still serves
	}
	return nil, err
}
