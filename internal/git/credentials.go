package git

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Credentials are what a remote asks for. They are for one command only.
type Credentials struct {
	Username string
	Password string
	Token    string // a password that needs no name
}

// tokenUser goes with a token that has no name: the forges that look at the
// name at all take this one.
const tokenUser = "x-access-token"

// The helper's environment. The names are in its text, the values never are.
const (
	userVariable     = "CUBBY_GIT_USERNAME"
	passwordVariable = "CUBBY_GIT_PASSWORD" //nolint:gosec // a name, not a password
	helperScript     = `!f() { test "$1" = get || exit 0; printf 'username=%s\npassword=%s\n' "$` + userVariable + `" "$` + passwordVariable + `"; }; f`
)

func (c Credentials) empty() bool { return c == Credentials{} }

// addTo gives the credentials to a command. The first entry of the config
// forgets all helpers of the sandbox, which might write them down.
func (c Credentials) addTo(cmd *Command, origin string) error {
	if c.empty() {
		return nil
	}
	if c.Token != "" && c.Password != "" {
		return invalid("token: both a password and a token")
	}
	name, password := c.Username, c.Password
	if c.Token != "" {
		password = c.Token
		if name == "" {
			name = tokenUser
		}
	}
	for field, value := range map[string]string{"username": name, "password": password} {
		if len(value) > maxCredential || !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
			return invalid("%s: over %d bytes, or with a character that no line of text has", field, maxCredential)
		}
	}
	if name == "" {
		return invalid("username: missing").Hint("give username and password, or token")
	}
	cmd.Secrets = map[string]string{userVariable: name, passwordVariable: password}
	cmd.Env["GIT_CONFIG_COUNT"] = "4"
	cmd.Env["GIT_CONFIG_KEY_0"], cmd.Env["GIT_CONFIG_VALUE_0"] = "credential.helper", ""
	// Without an origin the script names it; until then it is one that no
	// remote has.
	cmd.Env["GIT_CONFIG_KEY_1"], cmd.Env["GIT_CONFIG_VALUE_1"] = "credential."+origin+".helper", helperScript
	// What cleans up inherits the environment: it must not go on alone.
	cmd.Env["GIT_CONFIG_KEY_2"], cmd.Env["GIT_CONFIG_VALUE_2"] = "gc.autoDetach", "false"
	cmd.Env["GIT_CONFIG_KEY_3"], cmd.Env["GIT_CONFIG_VALUE_3"] = "maintenance.autoDetach", "false"
	if origin == "" {
		cmd.Env["GIT_CONFIG_KEY_1"] = "credential.https://invalid.helper"
	}
	return nil
}

// remoteURL checks the URL of a remote, takes credentials out of it, and says
// whom they are for.
func remoteURL(field, raw string, given Credentials) (clean, origin string, c Credentials, err error) {
	bad := func(hint string) (string, string, Credentials, error) {
		return "", "", given, invalid("%s: not a URL that can be cloned in a sandbox", field).Hint("%s", hint)
	}
	const forms = "give https://host/path, http://host/path, or the absolute path of a repository in the sandbox"
	if raw == "" || len(raw) > maxURL || !utf8.ValidString(raw) || strings.ContainsFunc(raw, notInURL) {
		return bad(forms)
	}
	if local, ok := strings.CutPrefix(raw, "file://"); ok || strings.HasPrefix(raw, "/") {
		if !strings.HasPrefix(local, "/") && ok {
			return bad(forms)
		}
		return raw, "", given, nil
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return bad(forms)
	}
	switch u.Scheme {
	case "http", "https":
	default:
		return bad("for ssh run git in the sandbox, where its keys are; here " + forms)
	}
	if u.Host == "" || u.Hostname() == "" || strings.ContainsAny(u.Host, "*?") || strings.HasPrefix(u.Host, "-") {
		return bad(forms)
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return bad("leave out what follows ? and #; credentials go into username and password, or token")
	}
	if u.User != nil {
		password, ok := u.User.Password()
		if given.Username != "" || ok && (given.Password != "" || given.Token != "") {
			return "", "", given, invalid("%s: credentials in the URL and beside it", field)
		}
		given.Username = u.User.Username()
		if ok {
			given.Password = password
		}
		u.User = nil
	}
	return u.String(), u.Scheme + "://" + u.Host, given, nil
}
