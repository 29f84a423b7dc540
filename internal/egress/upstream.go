package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Upstream is a proxy that runs alone, through which everything goes: this one
// decides on names, that one on names and addresses, and resolves them.
type Upstream struct {
	address string // host:port
	tls     *tls.Config
	keys    Keys
	now     func() time.Time
}

// NewUpstream reads the URL of a proxy, http://host:port or https://host:port.
func NewUpstream(proxy string, keys Keys) (*Upstream, error) {
	u, err := url.Parse(proxy)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" || u.RawQuery != "" || u.User != nil {
		return nil, errs.E(errs.Invalid, "egress-proxy: %q is not http://host:port or https://host:port", proxy)
	}
	if len(keys.list) == 0 {
		return nil, errs.E(errs.Invalid, "egress-proxy: a signing key is needed").Hint("set CUBBY_EGRESS_SIGNING_KEY to the key of the proxy")
	}
	up := &Upstream{address: u.Host, keys: keys, now: time.Now}
	if u.Scheme == "https" {
		up.tls = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	}
	if u.Port() == "" {
		port := "80"
		if up.tls != nil {
			port = "443"
		}
		up.address = net.JoinHostPort(u.Hostname(), port)
	}
	return up, nil
}

// connect opens a tunnel for a sandbox to what d allows, with a token that was
// made for it. The error is a *deniedError, or says what went wrong.
func (u *Upstream) connect(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), box sandbox.UID, policy sandbox.Policy, d Decision) (net.Conn, error) {
	token, err := u.keys.sign(box, policy, u.now())
	if err != nil {
		return nil, errs.E(errs.Internal, "sign a token for the egress proxy").Because(err)
	}
	conn, err := dial(ctx, "tcp", u.address)
	if err != nil {
		return nil, errs.E(errs.Unavailable, "the egress proxy cannot be reached").Because(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	tunnel, err := u.ask(ctx, conn, d, token)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return tunnel, nil
}

func (u *Upstream) ask(ctx context.Context, conn net.Conn, d Decision, token string) (net.Conn, error) {
	broken := func(err error) error {
		return errs.E(errs.Unavailable, "the egress proxy broke the connection").Because(err)
	}
	if u.tls != nil {
		secured := tls.Client(conn, u.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, broken(err)
		}
		conn = secured
	}
	request := "CONNECT " + d.HostPort() + " HTTP/1.1\r\nHost: " + d.HostPort() + "\r\nProxy-Authorization: Bearer " + token + "\r\n\r\n"
	if _, err := io.WriteString(conn, request); err != nil {
		return nil, broken(err)
	}
	head := &io.LimitedReader{R: conn, N: maxHeaderBytes}
	from := bufio.NewReader(head)
	res, err := http.ReadResponse(from, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, broken(err)
	}
	if res.StatusCode == http.StatusOK {
		// A server may speak first, and what it said came with the answer.
		early, _ := from.Peek(from.Buffered())
		return &replayed{Conn: conn, first: early}, nil
	}
	said, _ := io.ReadAll(io.LimitReader(res.Body, 2048))
	_ = res.Body.Close()
	switch res.StatusCode {
	case http.StatusForbidden:
		rule := Rule(res.Header.Get(ruleHeader))
		switch rule {
		case RuleNone, RuleAllowlist, RuleOpen, RuleOperator, RuleTask, RuleDeny, RuleServerName, RuleAddress, RuleName:
		default:
			rule = RuleAddress
		}
		return nil, &deniedError{d.denied(rule, "the egress proxy denies "+d.Host, firstLine(string(said)))}
	case http.StatusProxyAuthRequired:
		return nil, errs.E(errs.Unavailable, "the egress proxy does not take the daemon's tokens").
			Hint("both need the same signing key")
	}
	return nil, errs.E(errs.Unavailable, "%s does not answer", d.HostPort())
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return printable(line, 200)
}
