package preview

import (
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// rewrite makes the request that the app gets of the visitor's: as if the
// visitor were on localhost, unless the sandbox wants it otherwise.
func (d *Door) rewrite(pr *httputil.ProxyRequest) {
	v := visiting(pr.In.Context())
	out := pr.Out
	out.URL.Scheme, out.URL.Host = "http", v.key
	// As the visitor wrote it: the proxy takes out what it does not understand.
	out.URL.RawQuery = pr.In.URL.RawQuery
	// They are known when the body has ended, and the server puts them there.
	out.Trailer = pr.In.Trailer
	dropOfProxies(out.Header)
	out.Header.Set("X-Real-Ip", visitorAddress(pr.In, d.cfg.Behind))
	if d.cfg.Behind {
		out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
	}
	pr.SetXForwarded()
	out.Header.Set("X-Forwarded-Proto", d.cfg.Names.Scheme)
	if v.box.Spec.HostHeader != sandbox.HostPreserve {
		asLocal(out, v.target)
	}
}

// asLocal makes a request one of a page on localhost.
func asLocal(out *http.Request, t target) {
	out.Host = "localhost:" + strconv.Itoa(t.port)
	local := "http://" + out.Host
	switch origin := out.Header.Get("Origin"); {
	case strings.EqualFold(origin, t.origin):
		out.Header.Set("Origin", local)
		// Frameworks compare these with the origin: Next.js refuses its own forms
		// when they differ.
		out.Header.Del("X-Forwarded-Host")
		out.Header.Del("X-Forwarded-Proto")
	case strings.EqualFold(origin, local):
		// A page of the visitor's own machine is foreign here, and must not pass for
		// one of the app's.
		out.Header.Set("Origin", "null")
	}
	if path, ok := below(out.Header.Get("Referer"), t.origin); ok {
		out.Header.Set("Referer", local+path)
	} else if _, ok := below(out.Header.Get("Referer"), local); ok {
		out.Header.Del("Referer")
	}
}

// below returns what follows an origin in an address.
func below(address, origin string) (rest string, ok bool) {
	if len(address) < len(origin) || !strings.EqualFold(address[:len(origin)], origin) {
		return "", false
	}
	rest = address[len(origin):]
	return rest, rest == "" || rest[0] == '/' || rest[0] == '?'
}

// answer makes the answer that the visitor gets of the app's.
func (d *Door) answer(res *http.Response) error {
	v := visiting(res.Request.Context())
	if err := v.own(); err != nil {
		return err
	}
	if fields(res.Header) > maxAnswerFields {
		return errs.E(errs.Unavailable, "the app's answer has more than %d header fields", maxAnswerFields)
	}
	dropForProxies(res.Header)
	if location := res.Header.Get("Location"); location != "" && v.box.Spec.HostHeader != sandbox.HostPreserve {
		res.Header.Set("Location", outside(location, v.target))
	}
	if cookies := res.Header.Values("Set-Cookie"); len(cookies) > 0 {
		res.Header.Del("Set-Cookie")
		for _, c := range cookies {
			if c, ok := ownCookie(c); ok {
				res.Header.Add("Set-Cookie", c)
			}
		}
	}
	switched := res.StatusCode == http.StatusSwitchingProtocols
	if switched {
		v.switched(res)
	}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); switched || kind == "text/event-stream" {
		v.endless()
	}
	return nil
}

func fields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// outside turns an address of the app as it sees itself into one that visitors
// can follow.
func outside(location string, t target) string {
	u, err := url.Parse(location)
	if err != nil || u.Host == "" || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" {
		return location
	}
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		host, port = strings.Trim(u.Host, "[]"), "80"
	}
	if port != strconv.Itoa(t.port) || !slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, strings.ToLower(host)) {
		return location
	}
	own, err := url.Parse(t.origin)
	if err != nil {
		return location
	}
	u.Scheme, u.Host = own.Scheme, own.Host
	return u.String()
}

// ownCookie keeps a cookie of the app to the preview's own host name: one of a
// parent domain would be other sandboxes' too. It reports false for those by
// which the door knows visitors.
func ownCookie(line string) (string, bool) {
	parts := strings.Split(line, ";")
	name, _, _ := strings.Cut(parts[0], "=")
	if name = strings.TrimSpace(name); name == plainCookie || name == hostCookie {
		return "", false
	}
	parts = slices.DeleteFunc(parts, func(part string) bool {
		name, _, _ := strings.Cut(part, "=")
		return strings.EqualFold(strings.TrimSpace(name), "domain")
	})
	return strings.Join(parts, ";"), true
}
