package sandbox

import (
	"net/url"
	"strings"
)

// maxRemote bounds the URL of a git remote.
const maxRemote = 2048

// validateRemote checks where tasks are pushed to: a URL without credentials, which
// everybody sees who sees the sandbox.
func validateRemote(raw string) error {
	if raw == "" {
		return nil
	}
	u, err := url.Parse(raw)
	if err != nil || len(raw) > maxRemote || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || !printable(raw) || strings.ContainsAny(raw, " ?#*") {
		return invalid("git_remote_url: not the URL of a repository").Hint("give https://host/path")
	}
	if u.User != nil {
		return invalid("git_remote_url: it has credentials").Hint("the operator sets them: cubby secret set GIT_TOKEN")
	}
	return nil
}
