package config

import (
	"net/url"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	previewsOff    = "off"
	defaultPreview = "127.0.0.1:9091"
)

// Previews is the address to serve previews on; "" is none. When it was not
// asked for, a daemon that cannot have it goes without.
func (c Config) Previews() (address string, asked bool) {
	switch c.PreviewListen {
	case "":
		return defaultPreview, false
	case previewsOff:
		return "", true
	}
	return c.PreviewListen, true
}

// validatePreviews leaves it to the door what a domain is.
func (c Config) validatePreviews() error {
	if address, _ := c.Previews(); address != "" {
		// Tokens of the API are no matter here: who may see what is decided for each
		// sandbox.
		if _, err := listenHost("preview-listen", address); err != nil {
			return err
		}
	}
	if (c.PreviewTLSCert == "") != (c.PreviewTLSKey == "") {
		return errs.E(errs.Invalid, "preview-tls-cert and preview-tls-key go together")
	}
	if c.PreviewURL == "" {
		return nil
	}
	u, err := url.Parse(c.PreviewURL)
	if err != nil || !baseURL(c.PreviewURL) || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return errs.E(errs.Invalid, "preview-url: %q is not http:// or https:// with a host and no path", c.PreviewURL)
	}
	if !strings.EqualFold(u.Hostname(), strings.TrimSuffix(c.PreviewDomain, ".")) {
		return errs.E(errs.Invalid, "preview-url: its host %s is not preview-domain, %s", u.Hostname(), c.PreviewDomain).
			Hint("set preview-domain to the same name")
	}
	return nil
}
