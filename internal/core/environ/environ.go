// Package environ makes the environment that every command of a sandbox inherits:
// how programs hear of the way out, and whom to trust. It sets nothing of what
// depends on the user that a command runs as.
package environ

import (
	"maps"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/image"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	proxyURL    = "http://127.0.0.1:3128" // the agent's end of the egress path
	noProxy     = "localhost,127.0.0.1,::1"
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// foreignProxies are the variables in which an image could name a proxy of the
// place where it was made.
var foreignProxies = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}

// NamesProxy reports whether a variable names a proxy, in any case.
func NamesProxy(variable string) bool {
	return slices.Contains(foreignProxies, strings.ToUpper(variable))
}

// ProxyVariables are how programs hear of the way out.
func ProxyVariables() map[string]string {
	return map[string]string{
		"HTTP_PROXY": proxyURL, "HTTPS_PROXY": proxyURL, "NO_PROXY": noProxy,
		"http_proxy": proxyURL, "https_proxy": proxyURL, "no_proxy": noProxy,
	}
}

// javaProxy and javaAuthorities are how Java hears of the proxy and of whom to
// trust: of the usual variables it reads none. (It says on standard error that
// it was told.)
const (
	javaProxy       = "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128"
	javaAuthorities = "-Djavax.net.ssl.trustStore=" + driver.TrustStorePath
)

// authorityVariables are what programs read to learn whom to trust: OpenSSL
// and Go, curl and with it R, git, Python's requests and pip, Node, Deno, cargo,
// AWS tools.
func authorityVariables() []string {
	return []string{
		"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "PIP_CERT",
		"NODE_EXTRA_CA_CERTS", "DENO_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE",
	}
}

// Of is what every command of a sandbox inherits: the image's
// variables, then cubby's, then the caller's, each name once. HOME, USER and
// LOGNAME follow from the user that a command runs as and are the agent's to
// set, unless the caller names them. A proxy of the image's is left out: no sandbox
// reaches it.
func Of(img image.Image, s sandbox.Spec, authorities bool, indexes map[string]string) []string {
	env := map[string]string{"PATH": defaultPath, "LANG": "C.UTF-8"}
	for _, kv := range img.Env {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" && !strings.ContainsRune(kv, 0) {
			env[name] = value
		}
	}
	for _, name := range []string{"HOME", "USER", "LOGNAME", "HOSTNAME", "PWD"} {
		delete(env, name)
	}
	java := []string{env["JAVA_TOOL_OPTIONS"]}
	maps.DeleteFunc(env, func(name, _ string) bool { return NamesProxy(name) })
	if s.Network.NamesProxy() {
		maps.Copy(env, ProxyVariables())
		java = append(java, javaProxy)
	}
	if authorities {
		java = append(java, javaAuthorities)
		for _, name := range authorityVariables() {
			env[name] = driver.AuthoritiesPath
		}
	}
	if options := strings.TrimSpace(strings.Join(java, " ")); options != "" {
		env["JAVA_TOOL_OPTIONS"] = options
	}
	maps.Copy(env, indexes)
	maps.Copy(env, s.Env)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}
