package preview

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// Parameter is that of a link's address which has the token.
	Parameter = "cubby_preview"
	// DefaultLinkTime is how long a link holds that names no time.
	DefaultLinkTime = 24 * time.Hour
	// MaxLinkTime is how long one holds at most.
	MaxLinkTime = 90 * 24 * time.Hour

	keySize = sha256.Size
)

// Link is an address under which whoever has it sees a port.
type Link struct {
	URL     string
	Expires time.Time
}

// Link makes a link to a port of the caller's sandbox. It holds for a time, 0
// being [DefaultLinkTime], or until [Previews.EndLinks]. It is Unsupported
// while there are no previews.
func (p *Previews) Link(ctx context.Context, id string, port int, holds time.Duration) (Link, error) {
	leave, err := p.cfg.Gate.Enter(ctx)
	if err != nil {
		return Link{}, err
	}
	defer leave()
	switch {
	case p.URL("id", port) == "":
		return Link{}, errs.E(errs.Unsupported, "this daemon serves no previews").Hint("the operator sets preview-listen")
	case holds < 0 || holds > MaxLinkTime:
		return Link{}, errs.E(errs.Invalid, "a link holds for at most %d seconds", int(MaxLinkTime.Seconds()))
	case holds == 0:
		holds = DefaultLinkTime
	}
	if err := sandbox.ValidatePort(port); err != nil {
		return Link{}, err
	}
	b, err := p.cfg.Scope.Find(ctx, id)
	if err != nil {
		return Link{}, err
	}
	token, expires, err := p.token(ctx, b, port, p.cfg.Now().Add(holds))
	if err != nil {
		return Link{}, err
	}
	return Link{URL: p.URL(b.ID, port) + "?" + Parameter + "=" + url.QueryEscape(token), Expires: expires}, nil
}

// Vouch makes the token of a link for somebody who is known to be the external user
// of a sandbox of any tenant, until a time or for [MaxLinkTime]. It is
// errs.Unauthenticated, as in [Previews.Admit], when there is no such sandbox or it
// is another user's.
func (p *Previews) Vouch(ctx context.Context, id string, port int, user string, until time.Time) (token string, err error) {
	leave, err := p.cfg.Gate.Enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	b, err := p.find(ctx, id)
	owner := b.Spec.External.UserID
	switch {
	case errors.Is(err, errs.NotFound), errors.Is(err, errs.Invalid):
		return "", errDenied()
	case err != nil:
		return "", err
	case sandbox.ValidatePort(port) != nil, owner == "", subtle.ConstantTimeCompare([]byte(owner), []byte(user)) != 1:
		return "", errDenied()
	}
	expires := p.cfg.Now().Add(MaxLinkTime)
	if until.Before(expires) {
		expires = until
	}
	token, _, err = p.token(ctx, b, port, expires)
	return token, err
}

// token makes one of a sandbox's, whose key it makes at the first.
func (p *Previews) token(ctx context.Context, b sandbox.Sandbox, port int, expires time.Time) (string, time.Time, error) {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	key, err := p.cfg.Store.LinkKey(ctx, b.UID, key)
	if err != nil {
		return "", time.Time{}, err
	}
	expires = expires.Truncate(time.Second)
	return sign(key, b.UID, port, expires), expires, nil
}

// EndLinks ends all links to the ports of the caller's sandbox, and what they
// opened. Repeating it does nothing more.
func (p *Previews) EndLinks(ctx context.Context, id string) error {
	leave, err := p.cfg.Gate.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	b, err := p.cfg.Scope.Find(ctx, id)
	if err != nil {
		return err
	}
	return p.cfg.Store.DropLinkKey(ctx, b.UID)
}

// holding returns the first token that holds for a port of a sandbox; "" when
// none does. It takes as long for the zero sandbox, which has no key.
func (p *Previews) holding(ctx context.Context, b sandbox.Sandbox, port int, tokens []string) (string, time.Time, error) {
	if len(tokens) == 0 {
		return "", time.Time{}, nil
	}
	key, err := p.cfg.Store.LinkKey(ctx, b.UID, nil)
	if err != nil && (b.UID != "" || !errors.Is(err, errs.NotFound)) {
		return "", time.Time{}, err
	}
	now, none := p.cfg.Now(), len(key) == 0
	for _, token := range tokens {
		expires, ok := expiry(token)
		if ok && now.Before(expires) && hmac.Equal([]byte(token), []byte(sign(key, b.UID, port, expires))) && !none {
			return token, expires, nil
		}
	}
	return "", time.Time{}, nil
}

// sign makes the token of a link: when it expires, and a proof by the sandbox's
// key that covers also what it opens.
func sign(key []byte, box sandbox.UID, port int, expires time.Time) string {
	at := strconv.FormatInt(expires.Unix(), 36)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "cubby preview link\n%s\n%d\n%s", box, port, at)
	return at + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// expiry reads when a token expires that claims to be one.
func expiry(token string) (time.Time, bool) {
	at, _, ok := strings.Cut(token, ".")
	seconds, err := strconv.ParseInt(at, 36, 64)
	return time.Unix(seconds, 0), ok && err == nil
}
