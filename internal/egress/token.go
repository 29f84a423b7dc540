package egress

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A token tells a proxy that runs alone whose stream it gets and what that may
// reach. The form is agentbox's: a JWT with HS256, of the issuer below, whose
// allowed_hosts are a list or one text with commas. The claims mode and
// denied_hosts are cubby's own; without mode it is an allowlist, and an
// allowlist without hosts reaches nothing.

const (
	tokenIssuer = "sandbox-egress-control"
	// tokenLife is how long a token of the daemon's serves: it makes one for
	// every connection.
	tokenLife = 5 * time.Minute
	// tokenSkew is how far the clocks of two machines may be apart.
	tokenSkew = 30 * time.Second
	// maxToken bounds what is parsed, in bytes.
	maxToken = 24 << 10
	// minKey is the shortest key that is taken, in bytes.
	minKey = 16
)

// Keys sign and verify tokens. The first signs; all verify, so that a key can
// be replaced while tokens of the old one are about.
type Keys struct{ list []signingKey }

type signingKey struct {
	id     string // its kid
	secret []byte
}

// ParseKeys reads "key" or "id:key,id2:key2". It is errs.Invalid for an empty
// list, short keys and ids that occur twice; the error shows no key.
func ParseKeys(list string) (Keys, error) {
	var k Keys
	seen := map[string]bool{}
	for i, entry := range strings.Split(list, ",") {
		entry = strings.TrimSpace(entry)
		id, secret, ok := strings.Cut(entry, ":")
		if !ok {
			id, secret = "", entry
		}
		switch {
		case len(secret) < minKey:
			return Keys{}, errs.E(errs.Invalid, "signing key %d has less than %d characters", i+1, minKey)
		case seen[id]:
			return Keys{}, errs.E(errs.Invalid, "signing key %d has the id of another one", i+1).
				Hint("several keys are id:key,id2:key2")
		}
		seen[id] = true
		k.list = append(k.list, signingKey{id, []byte(secret)})
	}
	return k, nil
}

// claims are what a token says.
type claims struct {
	jwt.RegisteredClaims
	Session string   `json:"session_id"`
	Tenant  *string  `json:"tenant_id"`
	Allowed hostList `json:"allowed_hosts"`
	Denied  hostList `json:"denied_hosts,omitempty"`
	Mode    string   `json:"mode,omitempty"`
}

// hostList is a list of hosts, or one text with commas.
type hostList []string

// UnmarshalJSON reads both forms.
func (l *hostList) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*l = nil
		for h := range strings.SplitSeq(text, ",") {
			if h = strings.TrimSpace(h); h != "" {
				*l = append(*l, h)
			}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(l))
}

// sign makes a token.
func (k Keys) sign(box sandbox.UID, p sandbox.Policy, now time.Time) (string, error) {
	allowed := p.Allow
	if len(allowed) == 0 && p.Mode == sandbox.NetworkAllowlist {
		allowed = sandbox.DefaultAllow()
	}
	if p.Mode == sandbox.NetworkAllowlist {
		allowed = slices.Concat(allowed, p.Lent)
	}
	t := jwt.NewWithClaims(jwt.SigningMethodHS256, claims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: tokenIssuer, ExpiresAt: jwt.NewNumericDate(now.Add(tokenLife))},
		Session:          string(box), Allowed: allowed, Denied: p.Deny, Mode: string(p.Mode),
	})
	if id := k.list[0].id; id != "" {
		t.Header["kid"] = id
	}
	return t.SignedString(k.list[0].secret)
}

// verify reads a token. Whatever is wrong with it is errs.Unauthenticated.
func (k Keys) verify(token string, now time.Time) (session string, p sandbox.Policy, err error) {
	refused := errs.E(errs.Unauthenticated, "the token is missing, malformed, of another key or expired")
	if token == "" || len(token) > maxToken {
		return "", p, refused
	}
	var c claims
	_, err = jwt.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		id, named := t.Header["kid"].(string)
		var set jwt.VerificationKeySet
		for _, key := range k.list {
			if !named || key.id == id {
				set.Keys = append(set.Keys, key.secret)
			}
		}
		if len(set.Keys) == 0 {
			return nil, errors.New("unknown key")
		}
		return set, nil
	}, jwt.WithValidMethods([]string{"HS256"}), jwt.WithIssuer(tokenIssuer), jwt.WithExpirationRequired(),
		jwt.WithLeeway(tokenSkew), jwt.WithTimeFunc(func() time.Time { return now }))
	if err != nil || c.Session == "" {
		return "", p, refused.Because(err)
	}
	p = sandbox.Policy{Mode: sandbox.NetworkMode(c.Mode), Allow: c.Allowed, Deny: c.Denied}
	if c.Mode == "" {
		p.Mode = sandbox.NetworkAllowlist
	}
	if p.Mode == sandbox.NetworkAllowlist && len(p.Allow) == 0 {
		p.Mode, p.Deny = sandbox.NetworkNone, nil // an empty policy list would be the default one
	}
	if p.Mode != sandbox.NetworkAllowlist {
		p.Allow = nil
	}
	if err := errors.Join(p.Validate(), CheckPolicy(p)); err != nil {
		return "", sandbox.Policy{}, refused.Because(err)
	}
	return c.Session, p, nil
}
