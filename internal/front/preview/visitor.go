package preview

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/core/preview"
)

const (
	// tokenHeader is where programs present a link's token, or one of the API.
	tokenHeader = "X-Cubby-Preview-Token"
	// plainCookie and hostCookie keep a link's token in a browser, for one host
	// name; the second one is for TLS, where the browser sees to that.
	plainCookie = "cubby_preview"
	hostCookie  = "__Host-cubby_preview"
)

// credentials are what a request presents.
type credentials struct {
	address string // of the query: a link that was followed; "": none
	header  string
	cookies []string // of one name several can come: those of parent domains too
}

// takeCredentials takes what a request presents out of it, so that the app gets
// none of it.
func takeCredentials(r *http.Request) (c credentials) {
	c.header = r.Header.Get(tokenHeader)
	r.Header.Del(tokenHeader)
	c.address, r.URL.RawQuery = takeParameter(r.URL.RawQuery)
	lines := r.Header.Values("Cookie")
	r.Header.Del("Cookie")
	for _, line := range lines {
		kept, tokens := takeCookies(line)
		c.cookies = append(c.cookies, tokens...)
		if kept != "" {
			r.Header.Add("Cookie", kept)
		}
	}
	if referer := r.Header.Get("Referer"); referer != "" {
		if u, err := url.Parse(referer); err == nil {
			if token, rest := takeParameter(u.RawQuery); token != "" {
				u.RawQuery = rest
				r.Header.Set("Referer", u.String())
			}
		}
	}
	return c
}

// takeParameter takes the token out of a query and leaves the rest as it is.
func takeParameter(query string) (token, rest string) {
	if !strings.Contains(query, preview.Parameter+"=") {
		return "", query
	}
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		value, ok := strings.CutPrefix(part, preview.Parameter+"=")
		if !ok {
			kept = append(kept, part)
			continue
		}
		if text, err := url.QueryUnescape(value); err == nil && token == "" {
			token = text
		}
	}
	return token, strings.Join(kept, "&")
}

// takeCookies takes the tokens out of a Cookie header and leaves the rest as it
// is.
func takeCookies(line string) (rest string, tokens []string) {
	if !strings.Contains(line, plainCookie) {
		return line, nil
	}
	var kept []string
	for part := range strings.SplitSeq(line, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch strings.TrimSpace(name) {
		case plainCookie, hostCookie:
			tokens = append(tokens, strings.TrimSpace(value))
		default:
			kept = append(kept, strings.TrimSpace(part))
		}
	}
	return strings.Join(kept, "; "), tokens
}

// cookie keeps a token in a browser until it expires, for this host name alone.
func (n Names) cookie(token string, expires, now time.Time) *http.Cookie {
	c := &http.Cookie{
		Name: plainCookie, Value: token, Path: "/", MaxAge: max(1, int(expires.Sub(now).Seconds())),
		HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
	if n.Scheme == "https" {
		// A page elsewhere may have the preview in a frame.
		c.Name, c.Secure, c.SameSite, c.Partitioned = hostCookie, true, http.SameSiteNoneMode, true
	}
	return c
}
