package webhook

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/address"
	"github.com/cubbyhq/cubby/internal/errs"
)

// Resolver looks names up. [net.Resolver] is one.
type Resolver = *net.Resolver

// maxURL bounds the URL of a webhook.
const maxURL = 2048

// networksHint says how the operator allows an address.
const networksHint = "the operator allows networks with webhook-private-networks"

// Check is Invalid when a URL cannot be a webhook. Where its host's name leads shows when
// it is sent to.
func (s *Sender) Check(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil, len(text) > maxURL, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "",
		strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errs.E(errs.Invalid, "webhook: not an http or https URL of at most %d characters", maxURL)
	case u.User != nil:
		return errs.E(errs.Invalid, "webhook: it has a user or a password").Hint("check the signature of what is sent instead")
	case u.Fragment != "":
		return errs.E(errs.Invalid, "webhook: it has a fragment")
	}
	if at, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := s.allowed(netip.AddrPortFrom(at, 80).String()); err != nil {
			return errs.E(errs.Invalid, "webhook: %s", err.Error()).Hint(networksHint)
		}
	}
	return nil
}

// allowed says whether an address may be connected to; the error is an [addressError].
func (s *Sender) allowed(to string) error { return allowed(s.cfg.Private, to) }

func allowed(private []netip.Prefix, to string) error {
	c := address.OfDialed(to)
	if c == address.Public {
		return nil
	}
	if at, err := netip.ParseAddrPort(to); err == nil {
		ip := at.Addr().WithZone("").Unmap()
		for _, network := range private {
			if network.Contains(ip) {
				return nil
			}
		}
	}
	return addressError{c}
}

// addressError is an address that may not be connected to.
type addressError struct{ class address.Class }

func (e addressError) Error() string {
	return "it leads to a " + string(e.class) + " address, which webhooks may not"
}

// newClient returns a client that asks about each address before it connects, after its
// name was looked up: what the name leads to later does not matter.
func newClient(c Config) *http.Client {
	dialer := &net.Dialer{Timeout: answerIn, Resolver: c.Resolver, ControlContext: func(_ context.Context, _, to string, _ syscall.RawConn) error {
		return allowed(c.Private, to)
	}}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
			IdleConnTimeout: 30 * time.Second, MaxIdleConns: atOnce, MaxIdleConnsPerHost: 1, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
