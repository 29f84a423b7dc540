package providers

import (
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/cubbyhq/cubby/internal/address"
	"github.com/cubbyhq/cubby/internal/errs"
)

// base returns the base URL of a source as the dialect of the vendor takes it, and
// whether it is the source's own. What a base URL without a path, or with a version
// at its end, means is what the vendor's own SDK makes of it.
func (v vendor) base(from Source) (base string, own bool, err error) {
	text := from.BaseURL
	switch {
	case text == "" && v.url == "":
		return "", false, errs.E(errs.Invalid, "the provider %s needs a base URL", v.name)
	case text == "" && v.local && !from.Trusted:
		// Nobody but the operator sends cubby to the operator's machine.
		return "", false, errs.E(errs.Invalid, "the provider %s needs a base URL", v.name)
	case text == "":
		return v.url, false, nil
	}
	if v.local {
		text = ollamaURL(text)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return "", false, errs.E(errs.Invalid, "a base URL is as https://api.example.com/v1")
	case u.User != nil:
		return "", false, errs.E(errs.Invalid, "a base URL has no user: the key is set by itself")
	case u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return "", false, errs.E(errs.Invalid, "a base URL has no query and no fragment")
	}
	if !from.Trusted {
		if err := forStrangers(u); err != nil {
			return "", false, err
		}
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	if home, err := url.Parse(v.url); err == nil && path == "" && u.Host == home.Host {
		path = home.EscapedPath()
	}
	return u.Scheme + "://" + u.Host + v.path(path), true, nil
}

// forStrangers checks a base URL that the operator did not set. What its name leads
// to is checked when it is dialled: this says earlier what is plain to see.
func forStrangers(u *url.URL) error {
	if u.Scheme != "https" {
		return errs.E(errs.Invalid, "a base URL begins with https://")
	}
	host := u.Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		if c := address.Of(a); c != address.Public {
			return errs.E(errs.Invalid, "a base URL leads to a public address, and that is a %s one", c)
		}
		return nil
	}
	last := strings.TrimSuffix(host, ".")
	last = last[strings.LastIndex(last, ".")+1:]
	if last == "" || last[0] >= '0' && last[0] <= '9' {
		// Some resolvers take 127.1 and 0x7f000001 for addresses.
		return errs.E(errs.Invalid, "a base URL has a name or an address of four numbers")
	}
	return nil
}

func openaiPath(path string) string {
	path = strings.TrimSuffix(path, "/chat/completions")
	if path == "" {
		return "/v1"
	}
	return path
}

func anthropicPath(path string) string {
	return strings.TrimSuffix(strings.TrimSuffix(path, "/messages"), "/v1")
}

func geminiPath(path string) string {
	last := path[strings.LastIndex(path, "/")+1:]
	if last == "v1" || strings.HasPrefix(last, "v1alpha") || strings.HasPrefix(last, "v1beta") {
		return path
	}
	return path + "/v1beta"
}

func ollamaPath(path string) string {
	if strings.HasSuffix(path, "/v1") {
		return path
	}
	return path + "/v1"
}

// ollamaURL reads OLLAMA_HOST as Ollama does: the scheme, the host and the port may
// each be missing, and the address that a server listens on everywhere is this host.
func ollamaURL(text string) string {
	text = strings.Trim(strings.TrimSpace(text), `"'`)
	scheme, rest, ok := strings.Cut(text, "://")
	port := "11434"
	switch {
	case !ok:
		scheme, rest = "http", text
	case scheme == "http":
		port = "80"
	case scheme == "https":
		port = "443"
	}
	where, path, _ := strings.Cut(rest, "/")
	host, given, err := net.SplitHostPort(where)
	if err != nil {
		host, given = strings.Trim(where, "[]"), port
	}
	if given != "" {
		port = given
	}
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		host = "127.0.0.1"
		if a.Is6() {
			host = "::1"
		}
	}
	return scheme + "://" + net.JoinHostPort(host, port) + "/" + path
}
