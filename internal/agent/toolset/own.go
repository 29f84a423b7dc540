package toolset

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/tools"
)

// ownKey is whose own session it is, and of which language.
type ownKey struct{ tenant, thread, language string }

// idTries bounds how often an id that somebody else has is replaced by the next.
const idTries = 4

// id is that of the own session: always the same, so that it is found again by the
// next daemon, and the model can go on to use it when it was made again.
func (k ownKey) id(try int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "cubby own session\n%q\n%q\n%q\n%d", k.tenant, k.thread, k.language, try))
	return hex.EncodeToString(sum[:6])
}

// own finds the session of a call that names none. All who ask for one that has to be
// made wait for one create.
func (t *Thread) own(ctx context.Context, language string, make bool) (tools.Own, error) {
	if id := t.options.Sandbox; id != "" {
		b, err := t.core.Sandboxes().Get(ctx, id)
		if err != nil || !make {
			return tools.Own{ID: id}, err
		}
		return t.revived(ctx, b)
	}
	key := ownKey{t.who.Tenant, t.name, cmp.Or(language, sandbox.RuntimePython)}
	if !make {
		b, _, err := t.look(ctx, key)
		if err != nil {
			return tools.Own{}, err
		}
		if b.ID == "" {
			return tools.Own{}, errs.E(errs.NotFound, "this conversation has no session of its own for %s yet", key.language).
				Hint("name a session_id, or run something first")
		}
		return tools.Own{ID: string(b.ID)}, nil
	}
	call := t.owns.Join(ctx, key, func(ctx context.Context) (tools.Own, error) { return t.ensure(ctx, key) })
	defer call.Leave()
	select {
	case <-call.Done():
		return call.Result()
	case <-ctx.Done():
		return tools.Own{}, ctx.Err()
	}
}

// vacancy is where an own session can be made that there is not.
type vacancy struct {
	try  int
	gone string // why there is none any more; "": there never was one
}

// look returns the own session; its id is "" when there is none. Another tenant may
// have the id that it would have had, which is not seen here.
func (t *Thread) look(ctx context.Context, key ownKey) (b sandbox.Sandbox, free *vacancy, err error) {
	for try := range idTries {
		b, err := t.core.Sandboxes().Get(ctx, key.id(try))
		var gone string
		switch {
		case errors.Is(err, errs.NotFound):
			gone = scope.Fate(err)
		case err != nil:
			return sandbox.Sandbox{}, nil, err
		case b.Spec.Thread != key.thread:
			continue
		case b.State == sandbox.Failed || b.State == sandbox.Destroyed:
			gone = scope.Failure(b)
		default:
			return b, nil, nil
		}
		if free == nil || free.gone == "" && gone != "" {
			free = &vacancy{try, strings.TrimPrefix(gone, ": ")}
		}
	}
	if free == nil {
		err = errs.E(errs.Conflict, "every id for the conversation's own session is taken").Hint("call create_session")
	}
	return sandbox.Sandbox{}, free, err
}

// ensure returns the own session, which is made or started again if need be.
func (t *Thread) ensure(ctx context.Context, key ownKey) (tools.Own, error) {
	b, free, err := t.look(ctx, key)
	if err != nil {
		return tools.Own{}, err
	}
	if b.ID == "" {
		return t.create(ctx, key, *free)
	}
	return t.revived(ctx, b)
}

// revived is a session that is there. One that died is started again: the call that it
// died under, and this one, say what is lost.
func (t *Thread) revived(ctx context.Context, b sandbox.Sandbox) (tools.Own, error) {
	own := tools.Own{ID: string(b.ID)}
	if b.State == sandbox.Stopped && b.Cause.Died() {
		if _, _, err := t.core.Sandboxes().EnsureRunning(ctx, own.ID, lifecycle.UseAny); err != nil {
			return own, err
		}
		own.Anew = fmt.Sprintf("it died (%s) and was started again: its variables and processes are lost, its files are not", strings.TrimPrefix(b.Reason, sandbox.DiedPrefix))
	}
	return own, nil
}

// create makes the own session. Unless the operator gives such sessions limits of their
// own, it asks for nothing that would keep it from being one of those that are kept ready.
func (t *Thread) create(ctx context.Context, key ownKey, free vacancy) (tools.Own, error) {
	var b sandbox.Sandbox
	err := error(errs.Conflict)
	for try := free.try; try < idTries && errors.Is(err, errs.Conflict); try++ {
		b, err = t.core.Sandboxes().Create(ctx, lifecycle.CreateRequest{Interface: t.way, ID: key.id(try), Spec: sandbox.Spec{
			Runtime: key.language, Thread: key.thread, AutoWake: sandbox.AutoWakeAlways,
		}})
	}
	if err != nil {
		return tools.Own{}, err
	}
	own := tools.Own{ID: string(b.ID)}
	if free.gone != "" {
		lost := "its variables, processes and files are lost"
		if b.DiskUID != b.UID {
			lost = "its variables and processes are lost, its files are not"
		}
		own.Anew = fmt.Sprintf("the session was gone (%s) and was made again: %s", free.gone, lost)
	}
	return own, nil
}

// isOwn reports whether a session is one of the thread's own, or the one that is used
// in place of those.
func (t *Thread) isOwn(id string) bool {
	if t.options.Sandbox != "" {
		return strings.EqualFold(t.options.Sandbox, id)
	}
	for _, language := range []string{sandbox.RuntimePython, sandbox.RuntimeNode, sandbox.RuntimeR} {
		for try := range idTries {
			if (ownKey{t.who.Tenant, t.name, language}).id(try) == id {
				return true
			}
		}
	}
	return false
}
