package packages

import (
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Indexes are where packages come from: URLs of http or https. An empty one is
// the installer's own default.
type Indexes struct {
	PyPI string // a simple repository: https://pypi.org/simple
	NPM  string // a registry: https://registry.npmjs.org
	CRAN string // a mirror: https://cloud.r-project.org
}

// Validate checks one index. The error is Invalid and begins with key, the
// operator's name of it.
func Validate(key, index string) error {
	if index == "" {
		return nil
	}
	u, err := url.Parse(index)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.ContainsAny(index, " \t\r\n\x00") {
		return errs.E(errs.Invalid, "%s: not the URL of an index", key).Hint("write it as https://host/path")
	}
	if u.User != nil {
		return errs.E(errs.Invalid, "%s: a URL with a password, which every sandbox could read", key).
			Hint("put a proxy that logs in between them")
	}
	return nil
}

// Hosts are the hosts of the indexes, as host:port.
func (x Indexes) Hosts() []string {
	var hosts []string
	for _, index := range []string{x.PyPI, x.NPM, x.CRAN} {
		if u, err := url.Parse(index); err == nil && u.Host != "" {
			hosts = append(hosts, net.JoinHostPort(u.Hostname(), port(u)))
		}
	}
	return hosts
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "http":
		return "80"
	}
	return "443"
}

// Env is what points the installers at the indexes, for every command of a
// sandbox.
func (x Indexes) Env() map[string]string {
	env := map[string]string{}
	for name, index := range map[string]string{"PIP_INDEX_URL": x.PyPI, "NPM_CONFIG_REGISTRY": x.NPM, "CUBBY_CRAN_MIRROR": x.CRAN} {
		if index != "" {
			env[name] = index
		}
	}
	// pip asks twice before it trusts a plain connection; whoever set this
	// index has answered.
	if u, err := url.Parse(x.PyPI); err == nil && u.Scheme == "http" {
		env["PIP_TRUSTED_HOST"] = u.Host
	}
	return env
}

// InstallEnv is [Indexes.Env] for an installation alone. An index on the host's
// own loopback, which in a sandbox is the sandbox, is reached through the
// proxy as all others are.
func (x Indexes) InstallEnv() map[string]string {
	env := x.Env()
	for _, hostport := range x.Hosts() {
		host, _, _ := net.SplitHostPort(hostport)
		if addr, err := netip.ParseAddr(host); host == "localhost" || err == nil && addr.IsLoopback() {
			env["NO_PROXY"], env["no_proxy"] = "", ""
		}
	}
	return env
}
