package daemon

import (
	"os"
	"path/filepath"
)

// authorities finds the host's file of certificate authorities, "" when it has
// none. Sandboxes trust whom the host trusts: where a gateway opens TLS in the
// name of a site's own authority, the host knows that one, and images do not.
// A daemon that is told whom to trust tells its sandboxes the same.
func authorities(getenv func(string) string) string {
	for _, path := range []string{
		getenv("SSL_CERT_FILE"),
		"/etc/ssl/certs/ca-certificates.crt", // Debian, Ubuntu, Arch, Alpine
		"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora, RHEL
		"/etc/ssl/ca-bundle.pem",             // openSUSE
	} {
		if info, err := os.Stat(path); err == nil && filepath.IsAbs(path) && info.Mode().IsRegular() && info.Size() < 4<<20 {
			return path
		}
	}
	return ""
}
