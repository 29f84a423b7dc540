package wire

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"syscall"

	"github.com/cubbyhq/cubby/internal/llm"
)

// errFinal marks what another try would not change.
var errFinal = errors.New("not tried again")

// unanswered sorts why there was no answer. It names the address: whoever has set a
// base URL finds the mistake in it.
func (c *Client) unanswered(err error) *llm.Error {
	// The whole URL is in it.
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	var refusal interface{ RefusedAddress() string }
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var dial *net.OpError
	at := c.address()
	switch {
	case errors.As(err, &refusal):
		return c.fault(llm.Invalid, 0, refusal.RefusedAddress(), err)
	case errors.As(err, &name) && name.IsNotFound:
		return c.fault(llm.Unavailable, 0, "the host name of "+at+" is not known", errors.Join(err, errFinal))
	case errors.As(err, &certificate):
		return c.fault(llm.Unavailable, 0, "the certificate of "+at+" is not valid: "+reason(certificate.Err), errors.Join(err, errFinal))
	case errors.Is(err, errSilent):
		return c.fault(llm.Unavailable, 0, at+" was silent for "+c.config.Idle.String(), errors.Join(err, errFinal))
	case errors.As(err, &dial) && dial.Op == "dial":
		if dial.Addr != nil && dial.Addr.String() != at {
			at += " (" + dial.Addr.String() + ")"
		}
		return c.fault(llm.Unavailable, 0, "cannot connect to "+at+": "+reason(err), err)
	}
	return c.fault(llm.Unavailable, 0, at+" does not answer: "+reason(err), err)
}

// address is the host and port of the base URL.
func (c *Client) address() string {
	u, err := url.Parse(c.config.BaseURL)
	if err != nil || u.Host == "" {
		return "the base URL"
	}
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "http" {
		return net.JoinHostPort(u.Hostname(), "80")
	}
	return net.JoinHostPort(u.Hostname(), "443")
}

// reason is the cause of a failed connection without where it was made.
func reason(err error) string {
	var number syscall.Errno
	var op *net.OpError
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &op) && op.Timeout():
		return "no answer within the time limit"
	}
	return err.Error()
}

var title = regexp.MustCompile(`(?is)<title[^>]*>\s*(.*?)\s*</title>`)

// isPage reports whether an answer is a page for people.
func isPage(kind string, body []byte) bool {
	start := bytes.ToLower(bytes.TrimSpace(body[:min(len(body), 512)]))
	return kind == "text/html" || bytes.HasPrefix(start, []byte("<!doctype html")) || bytes.HasPrefix(start, []byte("<html"))
}

// page is the error of a base URL that leads to a page and not to an API.
func (c *Client) page(status int, body []byte) *llm.Error {
	about := fmt.Sprintf("HTTP status %d", status)
	if t := title.FindSubmatch(body); t != nil && len(t[1]) > 0 {
		about += fmt.Sprintf(", titled %q", html.UnescapeString(string(t[1])))
	}
	message := "its base URL " + c.base() + " answers with a web page (" + about + ")"
	switch {
	case status >= 500:
		return c.fault(llm.Unavailable, status, message, nil)
	case status == http.StatusTooManyRequests:
		return c.fault(llm.Limited, status, message, nil)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return c.fault(llm.Denied, status, message, nil)
	}
	message += "; check the base URL: that of most APIs ends with /v1"
	if status < 400 {
		return c.fault(llm.Broken, status, message, nil)
	}
	return c.fault(llm.Invalid, status, message, nil)
}

// base is the base URL without what may be secret.
func (c *Client) base() string {
	u, err := url.Parse(c.config.BaseURL)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

func (c *Client) broken(message string, cause error) *llm.Error {
	if errors.Is(cause, errSilent) {
		message = "it was silent for " + c.config.Idle.String() + " in the middle of its answer"
	}
	return c.fault(llm.Broken, 0, message, cause)
}
