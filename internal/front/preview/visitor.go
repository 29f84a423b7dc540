package preview

import (
	"net/http"
	"net/url"
	"regexp"
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
// none of it: neither where it counts, nor in a Referer, nor as anything that looks
// like it elsewhere.
func takeCredentials(r *http.Request) (c credentials) {
	c.header = r.Header.Get(tokenHeader)
	c.address, r.URL.RawQuery = takeParameter(r.URL.RawQuery)
	r.URL.RawQuery = withoutTokens(r.URL.RawQuery)
	lines := r.Header.Values("Cookie")
	r.Header.Del("Cookie")
	for _, line := range lines {
		kept, tokens := takeCookies(line)
		c.cookies = append(c.cookies, tokens...)
		if kept != "" {
			r.Header.Add("Cookie", kept)
		}
	}
	for name, values := range r.Header {
		if strings.EqualFold(plainName(name), tokenHeader) {
			delete(r.Header, name)
			continue
		}
		for i, value := range values {
			if name == "Referer" {
				value = withoutParameter(value)
			}
			values[i] = withoutTokens(value)
		}
	}
	if path := r.URL.EscapedPath(); withoutTokens(path) != path {
		if u, err := url.Parse(withoutTokens(path)); err == nil {
			r.URL.Path, r.URL.RawPath = u.Path, u.RawPath
		}
	}
	return c
}

// plainName is the name of a header as servers see it that write it with
// underscores, of which they then cannot tell from a hyphen.
func plainName(header string) string { return strings.ReplaceAll(header, "_", "-") }

// likeToken is a link's token behind the name of what it comes in, also in an
// address that was escaped as a part of another one.
var likeToken = regexp.MustCompile(`(?i)(__Host-)?cubby(_|%(25)*5f)preview(=|%(25)*3d)[^\s&;#"'<>]*`)

// withoutTokens takes out of a text what looks like a token.
func withoutTokens(text string) string {
	if !strings.Contains(strings.ToLower(text), "cubby") {
		return text
	}
	return likeToken.ReplaceAllString(text, "")
}

// withoutParameter takes the token out of the query of an address. It parses nothing
// else of that: who sends a Referer may write it as it likes.
func withoutParameter(address string) string {
	before, query, ok := strings.Cut(address, "?")
	if !ok {
		return address
	}
	query, fragment, _ := strings.Cut(query, "#") // which no browser sends
	if query != "" {
		if _, query = takeParameter(query); query != "" {
			before += "?" + query
		}
	}
	if fragment != "" {
		before += "#" + fragment
	}
	return before
}

// takeParameter takes the token out of a query and leaves the rest as it is. Its name
// may be escaped, and the query separated by semicolons, as some apps read it.
func takeParameter(query string) (token, rest string) {
	var kept strings.Builder
	for left := query; left != ""; {
		part := left
		if i := strings.IndexAny(left, "&;"); i >= 0 {
			part = left[:i+1]
		}
		left = left[len(part):]
		name, value, _ := strings.Cut(strings.TrimRight(part, "&;"), "=")
		if !isParameter(name) {
			kept.WriteString(part)
		} else if text, err := url.QueryUnescape(value); err == nil && token == "" {
			token = text
		}
	}
	if kept.Len() == len(query) {
		return "", query
	}
	return token, strings.TrimRight(kept.String(), "&;")
}

func isParameter(name string) bool {
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	return name == preview.Parameter
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
