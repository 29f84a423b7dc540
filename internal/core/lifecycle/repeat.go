package lifecycle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
)

// maxIdempotencyKey bounds what clients send.
const maxIdempotencyKey = 255

// createOnce is [Sandboxes.Create]. The idempotency key comes before all that a
// request names: a repeat gets the first one's sandbox also when the snapshot or
// the image is gone since.
func (s *creator) createOnce(ctx context.Context, r CreateRequest) (sandbox.Sandbox, error) {
	leave, err := s.cfg.Gate.Enter(ctx)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer leave()

	claim, done, err := s.claim(ctx, r)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if done != "" {
		return s.repeated(ctx, done)
	}
	b, err := s.createClaimed(ctx, r, claim)
	if err != nil && claim != nil {
		undo, cancel := gate.Detached(ctx)
		defer cancel()
		err = errors.Join(err, claim.Release(undo))
	}
	return b, err
}

// claim takes the request's idempotency key. done is the answer to an earlier
// request with it, "" if there was none.
func (s *creator) claim(ctx context.Context, r CreateRequest) (claim *store.Claim, done string, err error) {
	if r.IdempotencyKey == "" {
		return nil, "", nil
	}
	if len(r.IdempotencyKey) > maxIdempotencyKey {
		return nil, "", errs.E(errs.Invalid, "the idempotency key is longer than %d bytes", maxIdempotencyKey)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, "", errs.E(errs.Invalid, "the request cannot be compared with others").Because(err)
	}
	hash := sha256.Sum256(text)
	claim, err = s.cfg.Store.Idempotency(ctx, auth.From(ctx).Key(), r.IdempotencyKey, hex.EncodeToString(hash[:]))
	if err != nil {
		return nil, "", err
	}
	if uid, ok := claim.Result(); ok {
		return nil, uid, nil
	}
	return claim, "", nil
}

// answerOf is what a claim keeps of the answer to a create: the uid and, after it,
// the warnings, which no row has.
func answerOf(b sandbox.Sandbox) (string, error) {
	if len(b.Warnings) == 0 {
		return string(b.UID), nil
	}
	warnings, err := json.Marshal(b.Warnings)
	return string(b.UID) + " " + string(warnings), err
}

// repeated answers a request that was carried out before, with the answer of then.
func (s *creator) repeated(ctx context.Context, answer string) (sandbox.Sandbox, error) {
	uid, warnings, warned := strings.Cut(answer, " ")
	b, err := s.cfg.Store.SandboxByUID(ctx, sandbox.UID(uid))
	if err == nil && warned {
		err = json.Unmarshal([]byte(warnings), &b.Warnings)
	}
	if err != nil {
		return b, err
	}
	if !auth.From(ctx).Sees(b.Tenant) {
		return sandbox.Sandbox{}, scope.NoSuchSandbox()
	}
	if b.State == sandbox.Destroyed {
		return b, errs.E(errs.Conflict, "the sandbox that this idempotency key made was destroyed").
			Hint("use a fresh key")
	}
	return s.upToDate(b), nil
}
