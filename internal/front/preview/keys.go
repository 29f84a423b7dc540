package preview

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cubbyhq/cubby/internal/errs"
)

// A token of sandboxed's says who a visitor is and which sandbox he may see: a JWS
// with HS256, whose header kid names the key.

const (
	// minKey is the length that HS256 can be attacked at with no hope; maxKey and
	// maxKeys bound what a configuration holds.
	minKey, maxKey, maxKeyID, maxKeys = 16, 512, 64, 32

	tokenAudience = "sandbox-preview"
	// tokenSkew is how far the clocks of two machines may be apart.
	tokenSkew = 30 * time.Second
	// maxToken bounds what is parsed, in bytes.
	maxToken = 8 << 10
)

// Keys verify tokens.
type Keys struct{ list []tokenKey }

type tokenKey struct {
	id     string
	secret []byte
}

// ParseKeys reads "kid=secret,kid2=secret2"; "" is none. It is errs.Invalid for
// secrets that are too short or too long, and for names that are missing, odd or
// there twice; the error shows no secret.
func ParseKeys(list string) (Keys, error) {
	var k Keys
	if list == "" {
		return k, nil
	}
	for i, entry := range strings.Split(list, ",") {
		id, secret, ok := strings.Cut(strings.TrimSpace(entry), "=")
		odd := func(r rune) bool { return r <= ' ' || r > '~' }
		switch {
		case !ok, id == "", len(id) > maxKeyID, strings.ContainsFunc(id, odd):
			return Keys{}, errs.E(errs.Invalid, "preview-token-keys: key %d is not kid=secret", i+1).Hint("several are kid=secret,kid2=secret2")
		case len(secret) < minKey, len(secret) > maxKey:
			return Keys{}, errs.E(errs.Invalid, "preview-token-keys: the secret of key %d does not have %d to %d characters", i+1, minKey, maxKey)
		case k.of(id) != nil:
			return Keys{}, errs.E(errs.Invalid, "preview-token-keys: key %d has the name of another one", i+1)
		case i == maxKeys:
			return Keys{}, errs.E(errs.Invalid, "preview-token-keys: more than %d", maxKeys)
		}
		k.list = append(k.list, tokenKey{id, []byte(secret)})
	}
	return k, nil
}

// of returns the secret of a key; nil: there is none of this name.
func (k Keys) of(id string) []byte {
	if i := slices.IndexFunc(k.list, func(key tokenKey) bool { return key.id == id }); i >= 0 {
		return k.list[i].secret
	}
	return nil
}

// claims are what a token says.
type claims struct {
	jwt.RegisteredClaims
	Sandbox string `json:"sandbox_id"`
}

// verify reads a token. It is errs.Unauthenticated for whatever is wrong with it.
func (k Keys) verify(token string, now time.Time) (claims, error) {
	refused := errs.E(errs.Unauthenticated, "the token is missing, malformed, of an unknown key or expired")
	if token == "" || len(token) > maxToken {
		return claims{}, refused
	}
	var c claims
	_, err := jwt.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		id, ok := t.Header["kid"].(string)
		secret := k.of(id)
		switch {
		case !ok || secret == nil:
			return nil, errors.New("unknown key")
		case t.Header["crit"] != nil:
			return nil, errors.New("the token has a rule that is not known here")
		}
		return secret, nil
	}, jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Name}), jwt.WithAudience(tokenAudience), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithLeeway(tokenSkew), jwt.WithStrictDecoding(), jwt.WithTimeFunc(func() time.Time { return now }))
	if err != nil || c.Subject == "" || c.Sandbox == "" {
		return claims{}, refused.Because(err)
	}
	return c, nil
}
