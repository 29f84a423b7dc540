package preview

import (
	"net"
	"net/http"
	"strings"
)

// ofProxies are headers by which proxies tell an app who asks and what for, beside
// those that begin with X-Forwarded. What a visitor sends under these names is
// believed by apps, so only the door sets any.
var ofProxies = map[string]bool{
	"forwarded": true, "x-real-ip": true, "x-client-ip": true, "client-ip": true, "true-client-ip": true, "x-cluster-client-ip": true,
	"cf-connecting-ip": true, "cf-connecting-ipv6": true, "cf-pseudo-ipv4": true, "fastly-client-ip": true, "x-appengine-user-ip": true, "x-azure-clientip": true,
	"x-original-forwarded-for": true, "x-original-host": true, "x-original-url": true, "x-rewrite-url": true, "x-host": true,
	"x-scheme": true, "x-url-scheme": true, "front-end-https": true, "x-envoy-external-address": true, "x-proxyuser-ip": true,
	strings.ToLower(userHeader): true,
}

// dropOfProxies takes out of a request what only a proxy may say, also where the name
// is written with underscores.
func dropOfProxies(h http.Header) {
	for name := range h {
		plain := strings.ToLower(plainName(name))
		if ofProxies[plain] || strings.HasPrefix(plain, "x-forwarded") {
			delete(h, name)
		}
	}
}

// visitorAddress is who asks: whoever is connected, or whom the proxy in front that
// is believed named last.
func visitorAddress(r *http.Request, behind bool) string {
	if behind {
		if lines := r.Header.Values("X-Forwarded-For"); len(lines) > 0 {
			list := strings.Split(lines[len(lines)-1], ",")
			if last := strings.TrimSpace(list[len(list)-1]); net.ParseIP(last) != nil {
				return last
			}
		}
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return host
}

// dropForProxies takes out of an answer what is an order for a proxy in front: to send
// a file of its own machine, say. One that keeps it from buffering stays.
func dropForProxies(h http.Header) {
	for name := range h {
		lower := strings.ToLower(name)
		for _, prefix := range []string{"x-accel-", "x-sendfile", "x-lighttpd-send", "x-reproxy-"} {
			if strings.HasPrefix(lower, prefix) && lower != "x-accel-buffering" {
				delete(h, name)
			}
		}
	}
	keepCookies(h)
}

// clearSite lets an app clear what the browser keeps for its origin. Cookies are
// cleared for a whole site, in which every preview is: also those that let visitors
// into others.
const clearSite = "Clear-Site-Data"

// keepCookies takes cookies out of what an answer has a browser clear.
func keepCookies(h http.Header) {
	lines := h.Values(clearSite)
	if len(lines) == 0 {
		return
	}
	var kept []string
	for part := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		switch part = strings.TrimSpace(part); strings.ToLower(strings.Trim(part, `"`)) {
		case "", "cookies":
		case "*":
			kept = append(kept, `"cache"`, `"storage"`, `"executionContexts"`)
		default:
			kept = append(kept, part)
		}
	}
	h.Del(clearSite)
	if len(kept) > 0 {
		h.Set(clearSite, strings.Join(kept, ", "))
	}
}
