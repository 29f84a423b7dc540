package tools

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// call is a call while its tool runs.
type call struct {
	Call
	*arguments
	set  *Set
	core *core.Service

	id       string // the session that it is for
	language string // of code, where the call says so

	began  time.Time     // when the session's sandbox began to run, as running saw it
	again  string        // why it began anew for this call; "": it did not, or losses says it
	losses *scope.Losses // what the call found lost, whatever it did

	givenUp bool // the caller gave up, and what the call ran has been ended for that
}

// forSession reads which session a call is for.
func (c *call) forSession() {
	if c.Own == nil {
		c.id = c.text("session_id")
		return
	}
	c.id = c.textOr("session_id", "")
	if c.has("language") {
		c.language = c.oneOf("language", languages...)
	}
}

// ready returns what is wrong with the arguments, all of which were read; if that is
// nothing, it finds the session that the call is for where it names none.
func (c *call) ready(ctx context.Context) error { return c.find(ctx, true) }

// readyIfThere is ready for what is done only with a session that there is already.
func (c *call) readyIfThere(ctx context.Context) error { return c.find(ctx, false) }

func (c *call) find(ctx context.Context, make bool) error {
	if err := c.check(); err != nil || c.id != "" {
		return err
	}
	own, err := c.Own(ctx, c.language, make)
	if err != nil {
		return err
	}
	c.id, c.again = own.ID, own.Anew
	return nil
}

// session returns the sandbox of the call, which is one of the conversation or lent
// to it.
func (c *call) session(ctx context.Context) (sandbox.Sandbox, error) {
	if c.isLent() {
		return c.core.Sandboxes().Get(ctx, c.id)
	}
	return FindSession(ctx, c.core, c.id, c.Thread)
}

// isLent reports whether the session is one that is lent to the conversation.
func (c *call) isLent() bool { return c.Lent != "" && strings.EqualFold(c.id, c.Lent) }

// FindSession returns a sandbox of a conversation.
func FindSession(ctx context.Context, s *core.Service, id, thread string) (sandbox.Sandbox, error) {
	b, err := s.Sandboxes().Get(ctx, id)
	switch {
	case errors.Is(err, errs.Invalid) || errors.Is(err, errs.NotFound):
		return b, &noSession{errs.E(errs.NotFound, "Session '%.64s' not found%s", id, scope.Fate(err))}
	case err != nil:
		return b, err
	case b.Spec.Thread != thread:
		return b, &noSession{errs.E(errs.Forbidden, "Session '%s' belongs to another conversation", id)}
	}
	return b, nil
}

// running makes a sandbox of the conversation run: one that was stopped because
// nobody used it is started again.
func (c *call) running(ctx context.Context) error {
	id := c.id
	was, err := c.session(ctx)
	if err != nil {
		return err
	}
	b, how, err := c.core.Sandboxes().EnsureRunning(ctx, id, lifecycle.UseWell)
	if err == nil {
		c.began = b.StartedAt
		if how == lifecycle.EnsuredStarted {
			c.again = startedAgain("it was stopped", was.Reason)
		}
	}
	if !errors.Is(err, errs.WrongState) {
		return err
	}
	// It may have failed or died only now.
	if b, findErr := c.session(ctx); findErr == nil && b.State == sandbox.Failed {
		return &died{id, b.Reason, hintDied}
	} else if findErr == nil && b.State == sandbox.Stopped && b.Cause.Died() {
		return &died{id, deathOf(b), hintDied}
	}
	return err
}

// startedAgain says why a session began anew, and what it has lost.
func startedAgain(what, why string) string {
	if why = strings.TrimPrefix(why, sandbox.DiedPrefix); why != "" {
		what += " (" + why + ")"
	}
	return what + ", and was started again: its variables and processes are lost, its files are not"
}

// restarted says why the session was started again for this call, "" if it was not.
// It is asked when what the tool does has begun: the sandbox may have died after it
// was found running, and what used it then started it.
func (c *call) restarted(ctx context.Context) (string, error) {
	err := c.lookBack(ctx)
	return c.anew(), err
}

// anew is why the session began anew, as far as is known.
func (c *call) anew() string { return cmp.Or(c.losses.Reason(), c.again) }

// lookBack notes what ended the session since it was found running.
func (c *call) lookBack(ctx context.Context) error {
	id := c.id
	b, err := c.core.Sandboxes().Get(ctx, id)
	if err != nil || b.StartedAt.Equal(c.began) {
		return err
	}
	for after, more := int64(0), true; more; {
		events, next, err := c.core.Events().List(ctx, id, after, 0, event.SandboxDied, event.SandboxStopped)
		if err != nil {
			return err
		}
		after, more = next, len(events) > 0
		for _, e := range events {
			if p, err := event.PayloadOf(e); err == nil && e.Time.After(c.began) {
				c.note(p)
			}
		}
	}
	return nil
}

// note keeps why the session began anew, if the event says so.
func (c *call) note(happened event.Payload) {
	switch p := happened.(type) {
	case event.Died:
		c.again = startedAgain("it died", p.Reason)
	case event.Stopped:
		c.again = startedAgain("it was stopped", p.Reason)
	}
}

// deathOf says why a sandbox died, without the word that begins every such text.
func deathOf(b sandbox.Sandbox) string { return strings.TrimPrefix(b.Reason, sandbox.DiedPrefix) }

// status names the state of a session.
func status(b sandbox.Sandbox) string {
	switch {
	case b.State == sandbox.Creating:
		return "starting"
	case b.State == sandbox.Failed || b.State == sandbox.Stopped && b.Cause.Died():
		return "dead"
	}
	return string(b.State)
}

// active lists the sessions of the conversation, oldest first.
func (c *call) active(ctx context.Context) ([]ActiveSession, error) {
	list := []ActiveSession{}
	boxes, err := c.core.Threads().Sandboxes(ctx, c.Thread)
	for _, b := range boxes {
		list = append(list, ActiveSession{string(b.ID), runtimeOf(b), status(b)})
	}
	return list, err
}

// runtimeOf is the language of a session.
func runtimeOf(b sandbox.Sandbox) string { return cmp.Or(b.Spec.Runtime, "python") }

// runToEnd starts an exec in a session that it makes run, and returns its
// number when it has ended.
func (c *call) runToEnd(ctx context.Context, start func() (sandbox.Exec, error)) (int64, error) {
	if err := c.running(ctx); err != nil {
		return 0, err
	}
	x, err := start()
	if err != nil {
		return 0, err
	}
	// Whatever goes wrong now, it runs, and is awaited or cancelled.
	_, unread := c.restarted(ctx)
	if err := c.await(ctx, x.Seq); err != nil {
		return x.Seq, err
	}
	if unread != nil {
		_, unread = c.restarted(ctx)
	}
	return x.Seq, unread
}

// reading is a context in which the result of an exec that has ended can be read: also
// when the caller has given up, for a model that goes on later is told what was printed.
func (c *call) reading(ctx context.Context) context.Context {
	if c.givenUp {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// cancelWait bounds how long a command that nobody waits for any more may take
// to end.
const cancelWait = 30 * time.Second

// await waits for the end of an exec and reports its progress. When the caller
// gives up the exec is canceled: a cell is interrupted and its kernel keeps
// its state, a command is killed. What it has printed can be read then, see
// [call.reading]. When the daemon stops it goes on.
func (c *call) await(ctx context.Context, seq int64) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.set.life, cancel)()
	done := c.follow(waiting, seq)
	_, err := c.core.Execs().Wait(waiting, c.id, seq, -1)
	done(err == nil)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && c.set.work.Err() == nil:
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWait)
		defer cancel()
		x, err := c.core.Execs().Cancel(ending, c.id, seq)
		if err != nil && !errors.Is(err, errs.WrongState) {
			c.set.log.WarnContext(ctx, "cancel what a client gave up", "exec", seq, "err", err)
		}
		if c.givenUp = err == nil && x.Exit != nil; c.givenUp {
			return nil
		}
		return ctx.Err()
	case c.set.life.Err() != nil:
		return errs.E(errs.Unready, "the daemon is stopping, and the command goes on").
			Hint("ask get_output with command_id %d later", seq)
	}
	return err
}
