package preview

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/core/preview"
	"github.com/cubbyhq/cubby/internal/errs"
)

// sandboxed's way to private previews. The application that knows the users gives
// one of them a token and sends the browser with it to /preview-auth, which sends
// it on to the preview by a link. A proxy in front of previews may ask at
// /forward-auth whether a request may pass.

// Where the endpoints are, on the API's listener. They need no token of the API.
const (
	SignInPath  = "/preview-auth"
	ForwardPath = "/forward-auth"
)

// The ways in which /forward-auth sends a visitor to the application.
const (
	denyRedirect = "redirect"
	denyRefresh  = "meta-refresh"
)

const (
	maxReturn = 4 << 10
	// userHeader tells a proxy whose the sandbox is.
	userHeader = "X-Sandbox-External-User-Id"
)

// SignInConfig is what a SignIn needs beside its door.
type SignInConfig struct {
	Keys Keys
	// Redirect is where those go who are not let in; {sandbox_id} and {return} in it
	// are replaced. "": nowhere, they get a status.
	Redirect string
	DenyMode string // redirect or meta-refresh
	// API is the address of the API, to which a visitor may return too.
	API *url.URL
	// Error answers with an error.
	Error func(http.ResponseWriter, *http.Request, error)
}

// CheckSignIn checks the Redirect and the DenyMode of a [SignInConfig].
func CheckSignIn(redirect, mode string) error {
	if mode != denyRedirect && mode != denyRefresh {
		return errs.E(errs.Invalid, "forward-auth-deny-mode: %q is neither %s nor %s", mode, denyRedirect, denyRefresh)
	}
	if redirect == "" {
		return nil
	}
	u, err := url.Parse(redirect)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.ContainsAny(redirect, " \\\r\n\t") {
		return errs.E(errs.Invalid, "auth-redirect-url: %q is not http:// or https:// with a host", redirect).
			Hint("as https://app.example.com/login?sandbox={sandbox_id}&return={return}")
	}
	return nil
}

// SignIn serves the two endpoints.
type SignIn struct {
	SignInConfig
	door *Door
}

// SignIn returns the endpoints by which visitors of a door come in.
func (d *Door) SignIn(c SignInConfig) *SignIn { return &SignIn{c, d} }

// ServeHTTP answers at both paths.
func (s *SignIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	if r.URL.Path == ForwardPath {
		s.forward(w, r)
		return
	}
	s.signIn(w, r)
}

// signIn answers GET /preview-auth?token=…&return=….
func (s *SignIn) signIn(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	back, err := s.parseReturn(query["return"])
	if err != nil {
		s.Error(w, r, err)
		return
	}
	var c claims
	err = errs.E(errs.Unauthenticated, "one token is needed")
	if tokens := query["token"]; len(tokens) == 1 {
		c, err = s.Keys.verify(tokens[0], time.Now())
	}
	if err != nil {
		s.deny(w, r, back.id, back.String(), denyRedirect)
		return
	}
	if back.target == (target{}) { // the API's own host knows no preview's cookie
		s.sendOn(w, back.String())
		return
	}
	if !strings.EqualFold(c.Sandbox, back.id) {
		s.Error(w, r, errs.E(errs.Invalid, "return is an address of another sandbox than the token's"))
		return
	}
	until := c.ExpiresAt.Time
	if !until.After(time.Now()) { // not yet by the application's clock
		until = until.Add(tokenSkew)
	}
	token, err := s.door.cfg.Core.Previews().Vouch(r.Context(), back.id, back.port, c.Subject, until)
	switch {
	case errs.KindOf(err) == errs.Unauthenticated:
		s.deny(w, r, back.id, back.String(), denyRedirect)
	case err != nil:
		s.Error(w, r, err)
	default:
		s.sendOn(w, back.with(token))
	}
}

func (s *SignIn) sendOn(w http.ResponseWriter, address string) {
	w.Header().Set("Location", address)
	w.WriteHeader(http.StatusFound)
}

// destination is where a visitor wants to come back to.
type destination struct {
	target // the zero one: at the API
	url    *url.URL
}

func (d destination) String() string { return d.url.String() }

// with is the address with a link's token.
func (d destination) with(token string) string {
	u := *d.url
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += preview.Parameter + "=" + url.QueryEscape(token)
	return u.String()
}

// parseReturn checks where a visitor wants to come back to: a preview, at the
// address that previews have, or the API. Everything else would make this host one
// that leads strangers' links anywhere, with a token.
func (s *SignIn) parseReturn(values []string) (destination, error) {
	refused := errs.E(errs.Invalid, "return is not the address of a preview of this daemon").
		Hint("it begins as %s", s.door.cfg.Names.URL("ID", 3000))
	if len(values) != 1 || values[0] == "" || len(values[0]) > maxReturn {
		return destination{}, refused
	}
	text := values[0]
	// Browsers read some of these as others do not.
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }) {
		return destination{}, refused
	}
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.User != nil || u.Host == "" || u.Path != "" && u.Path[0] != '/' {
		return destination{}, refused
	}
	_, u.RawQuery = takeParameter(u.RawQuery)
	if strings.EqualFold(u.Host, s.API.Host) && u.Scheme == s.API.Scheme {
		return destination{url: u}, nil
	}
	names := s.door.cfg.Names
	t, ok := names.target(u.Host)
	// The origin that the daemon itself gives: what else listens on this name, on
	// another port, is not the preview.
	if !ok || u.Scheme != names.Scheme || t.origin != names.origin(u.Hostname()) {
		return destination{}, refused
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return destination{target: t, url: u}, nil
}

// origin is that of a preview with a host name.
func (n Names) origin(host string) string {
	o := n.Scheme + "://" + strings.ToLower(host)
	if n.Port != "" {
		o += ":" + n.Port
	}
	return o
}

// forward answers GET /forward-auth, with which a proxy asks about a request. What is
// said of a sandbox that is not the visitor's is said of one that there is not, too.
func (s *SignIn) forward(w http.ResponseWriter, r *http.Request) {
	names := s.door.cfg.Names
	t, ok := names.target(r.Header.Get("X-Forwarded-Host"))
	if !ok || len(r.Header.Values("X-Forwarded-Host")) != 1 {
		s.Error(w, r, errs.E(errs.Unauthenticated, "X-Forwarded-Host is not the name of a preview"))
		return
	}
	uri := r.Header.Get("X-Forwarded-Uri")
	// What the request brings is what the preview's own door looks at.
	c := takeCredentials(r)
	path, query, _ := strings.Cut(uri, "?")
	c.address, query = takeParameter(query)
	a, err := s.door.admit(r, t, c)
	switch {
	case err == nil:
		if !a.Open {
			w.Header().Set(userHeader, a.Box.Spec.External.UserID)
		}
		w.WriteHeader(http.StatusOK)
	case errs.KindOf(err) == errs.Unauthenticated:
		back := strings.TrimSuffix(names.URL(t.id, t.port), "/")
		if strings.HasPrefix(path, "/") && len(uri) <= maxReturn {
			back += path
			if query != "" {
				back += "?" + query
			}
		}
		s.deny(w, r, t.id, back, s.DenyMode)
	default:
		s.Error(w, r, err)
	}
}

// deny sends somebody who is not let in to the application, or says so.
func (s *SignIn) deny(w http.ResponseWriter, r *http.Request, id, back, mode string) {
	if s.Redirect == "" {
		s.Error(w, r, errs.E(errs.Unauthenticated, "unauthorized"))
		return
	}
	to := strings.NewReplacer("{sandbox_id}", url.QueryEscape(id), "{return}", url.QueryEscape(back)).Replace(s.Redirect)
	if mode != denyRefresh {
		s.sendOn(w, to)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors *")
	w.WriteHeader(http.StatusUnauthorized)
	// The visitor went away: nobody is left to tell.
	_, _ = fmt.Fprintf(w, "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0;url=%[1]s\"><title>Sign in</title><a href=\"%[1]s\">Sign in</a>\n", html.EscapeString(to))
}

// IsSignIn reports whether a path is one of the endpoints.
func IsSignIn(path string) bool { return path == SignInPath || path == ForwardPath }
