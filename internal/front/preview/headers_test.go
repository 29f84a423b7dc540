package preview_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/config"
)

// Orders for proxies passed from an app to the proxy in front of the previews, which
// sent files of its own machine; and one app cleared the cookies of all previews.
func TestAnswersOrderNothingOfProxies(t *testing.T) {
	orders := http.Header{
		"X-Accel-Redirect": {"/etc/passwd"}, "X-Accel-Expires": {"1000"}, "X-Accel-Limit-Rate": {"1"}, "X-Sendfile": {"/etc/passwd"}, "X-Sendfile2": {"/etc/passwd 0-"},
		"X-Lighttpd-Send-File": {"/etc/passwd"}, "X-Reproxy-Url": {"http://169.254.169.254/"}, "Clear-Site-Data": {`"cache", "cookies"`, `"COOKIES"`}, "X-Accel-Buffering": {"no"},
	}
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		for name, values := range orders {
			rw.Header()[name] = values
		}
		if r.URL.Path == "/all" {
			rw.Header()["Clear-Site-Data"] = []string{`"*"`}
		}
		if r.URL.Path == "/cookies" {
			rw.Header()["Clear-Site-Data"] = []string{`"cookies"`}
		}
		rw.WriteHeader(http.StatusEarlyHints)
		rw.WriteHeader(http.StatusOK)
	})
	for path, clears := range map[string][]string{"/": {`"cache"`}, "/all": {`"cache", "storage", "executionContexts"`}, "/cookies": nil} {
		status, header := w.exchange("GET " + path + " HTTP/1.1\r\nHost: " + w.host("a", 0) + "\r\nConnection: close\r\n\r\n")
		got := w.get("http://" + w.host("a", 0) + path)
		for _, h := range []http.Header{header, got.Header} {
			for name := range orders {
				want := map[string][]string{"X-Accel-Buffering": {"no"}, "Clear-Site-Data": clears}[name]
				if !slices.Equal(h.Values(name), want) {
					t.Errorf("%s, %s: %s = %q, want %q", path, status, name, h.Values(name), want)
				}
			}
		}
	}
}

// What proxies say of the visitor is said by the door alone, under whatever name a
// visitor tries.
func TestVisitorsDoNotSpeakForProxies(t *testing.T) {
	w := newWorld(t, echo)
	lies := []string{
		"X-Real-IP", "X_Real_IP", "X-Real_Ip", "X-Forwarded-For", "X_Forwarded_For", "X-Forwarded-User", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded",
		"Forwarded", "X-Client-IP", "Client_Ip", "True-Client-IP", "CF-Connecting-IP", "X-Original-URL", "X-Rewrite-URL", "X-Scheme", "X-Sandbox-External-User-Id",
	}
	request := "GET / HTTP/1.1\r\nHost: " + w.host("a", 0) + "\r\nConnection: close\r\n"
	for _, name := range lies {
		request += name + ": 6.6.6.6\r\n"
	}
	got := w.raw(request + "\r\n")
	if !strings.Contains(got, "X-Real-Ip: 127.0.0.1\r\n") || !strings.Contains(got, "X-Forwarded-For: 127.0.0.1\r\n") || strings.Contains(got, "6.6.6.6") {
		t.Errorf("the app gets %s", got)
	}
	behind := newWorld(t, echo, func(c *config.Config) { c.PreviewURL, c.PreviewDomain = "https://apps.example", "apps.example" })
	got = behind.raw(fmt.Sprintf("GET / HTTP/1.1\r\nHost: s-a-%d.apps.example\r\nConnection: close\r\nX-Forwarded-For: 6.6.6.6, 192.0.2.7\r\nX-Real-IP: 6.6.6.6\r\n\r\n", behind.port))
	if !strings.Contains(got, "X-Real-Ip: 192.0.2.7\r\n") {
		t.Errorf("behind a proxy the app gets %s", got)
	}
}

// A token reached the app in a Referer with a broken escape.
func TestNoTokenReachesTheApp(t *testing.T) {
	w := newWorld(t, echo)
	_, pass := w.link("p", w.port)
	host := w.host("p", 0)
	own := "http://" + host
	for name, tt := range map[string]struct{ target, header string }{
		"a Referer with a broken escape":        {"/", "Referer: " + own + "/%zz?cubby_preview=" + pass + "&a=%zz"},
		"a Referer whose query is broken":       {"/", "Referer: " + own + "/?%zz&cubby_preview=" + pass},
		"a Referer with an escaped name":        {"/", "Referer: " + own + "/?cubby%5Fpreview=" + pass},
		"a Referer with a semicolon":            {"/", "Referer: " + own + "/?a;cubby_preview=" + pass + ";b"},
		"a Referer with a second question mark": {"/", "Referer: " + own + "/??cubby_preview=" + pass},
		"a Referer that has it in a fragment":   {"/", "Referer: " + own + "/#cubby_preview=" + pass},
		"a Referer that has it in an address":   {"/", "Referer: " + own + "/?next=http%3A%2F%2Fx%2F%3Fcubby_preview%3D" + pass},
		"a cookie with an escaped name":         {"/", "Cookie: cubby%5Fpreview=" + pass},
		"a cookie in other letters":             {"/", "Cookie: __host-Cubby_Preview=" + pass},
		"a header with an underscore":           {"/", "X_Cubby_Preview_Token: " + pass},
		"some other header":                     {"/", "X-Page: " + own + "/?cubby_preview=" + pass},
		"the query":                             {"/?a&cubby%5fpreview=" + pass, "A: b"},
		"the query, after a semicolon":          {"/?a;cubby_preview=" + pass, "A: b"},
		"the query, in an address":              {"/?next=%2F%3Fcubby%255Fpreview%253D" + pass, "A: b"},
		"the path":                              {"/x%3Fcubby_preview%3D" + pass, "A: b"},
		"the path as a parameter":               {"/x;cubby_preview=" + pass + "/y", "A: b"},
	} {
		// A POST is not led to another address.
		got := w.raw("POST " + tt.target + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\nContent-Length: 0\r\nX-Cubby-Preview-Token: " + pass + "\r\n" + tt.header + "\r\n\r\n")
		if !strings.HasPrefix(got, "200 POST /") || strings.Contains(got, pass) {
			t.Errorf("%s: the app gets %s", name, got)
		}
	}
	// What only looks alike stays.
	got := w.raw("POST /a?cubby=1;x=%zz&preview=2& HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\nContent-Length: 0\r\nX-Cubby-Preview-Token: " + pass +
		"\r\nReferer: https://cubby.example/%zz?a&b#c\r\nCookie: cubby=1; preview=2\r\n\r\n")
	for _, want := range []string{"POST /a?cubby=1;x=%zz&preview=2& ", "Referer: https://cubby.example/%zz?a&b#c\r\n", "Cookie: cubby=1; preview=2\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the app does not get %q, but %s", want, got)
		}
	}
}
