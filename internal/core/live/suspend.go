package live

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// To what runs in a sandbox, a sleep is a daemon that goes away and comes back:
// [Run.Suspend] lets go of its commands without ending them, and
// [Sandboxes.Adopt] takes them up again, as after a restart. Whoever waits for a
// command, follows its output or looks at a terminal stays, and goes on with the
// sandbox's next run.

// Suspend ends the run and leaves all that it has to the next one: no command is
// finished, no journal gets an end, and the queues stay in the store. Without
// force it is errs.InUse, and nothing has changed, while somebody uses the
// sandbox; with force open streams break. The sandbox keeps its place. The caller
// holds the sandbox's lock.
func (r *Run) Suspend(force bool) error {
	if err := r.Leave(force); err != nil {
		return err
	}
	r.execs.suspend()
	secrets := r.queues.secretsLeft()
	r.cancel()
	r.execs.pumps.Wait()
	r.out.accepting.Wait()
	r.execs.letGo(secrets)
	r.execs.noteStarts()
	r.HangUp()
	s := r.s
	s.mu.Lock()
	if s.running[r.UID] == r {
		delete(s.running, r.UID)
	}
	s.carried[r.UID] = secrets
	s.mu.Unlock()
	close(r.left)
	return nil
}

// Leave refuses uses of the sandbox from now on, until [Run.GoOn]: who wants to use
// it waits for the holder of its lock. Without force it is errs.InUse, and nothing
// has changed, while somebody uses the sandbox.
func (r *Run) Leave(force bool) error {
	if !r.activity.Leave(force) {
		return errInUse()
	}
	// Nobody comes in any more, so what is not busy stays so.
	if !force && (r.execs.busy() || r.queues.busy()) {
		r.activity.Stay()
		return errInUse()
	}
	return nil
}

func errInUse() error {
	return errs.E(errs.InUse, "the sandbox is in use: a command, a transfer or a viewer is there").
		Hint("wait until it has ended, or use force: commands, kernels and terminals go on after the wake, transfers break")
}

// isSuspended reports whether the run leaves, or has left, its commands to the
// next one.
func (x *execs) isSuspended() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.suspended
}

// busy reports whether a command or a cell runs or starts, beside those whose end
// is known and only not stored yet. The program of a terminal is none, nor is a
// service.
func (x *execs) busy() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.live {
		if e.terminal == "" && e.service == nil && !e.givenUp() {
			return true
		}
	}
	return x.starting > 0
}

// suspend refuses execs from now on, and returns when those that were about to be
// numbered have their numbers: the next run finds them in the store.
func (x *execs) suspend() {
	x.mu.Lock()
	x.suspended = true
	x.mu.Unlock()
	x.begins.Wait()
}

// letGo ends what the run keeps of its execs, and adds the secrets that only it
// knows of those that have not begun.
func (x *execs) letGo(secrets secrets) {
	x.mu.Lock()
	for _, leave := range x.places {
		leave()
	}
	x.places = nil
	x.mu.Unlock()
	for _, e := range x.all() {
		e.mu.Lock()
		e.timers.stop()
		if e.exec.Status == sandbox.ExecPending && len(e.secrets) > 0 {
			secrets[e.seq] = e.secrets
		}
		e.mu.Unlock()
	}
}

// noteStarts writes down which execs have begun, for those who ask meanwhile.
func (x *execs) noteStarts() {
	for _, e := range x.all() {
		e.noteStart(context.Background())
	}
}

// secrets are those of execs that have not begun, by seq.
type secrets map[int64]map[string]string

// secretsLeft returns those of the commands that wait.
func (qs *queues) secretsLeft() secrets {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	left := make(secrets)
	for seq, item := range qs.waiting {
		if len(item.secrets) > 0 {
			left[seq] = item.secrets
		}
	}
	return left
}

// busy reports whether a command waits or runs in a queue, beside those whose end
// is known.
func (qs *queues) busy() bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for name := range qs.names {
		if qs.isBusy(name) {
			return true
		}
	}
	return qs.coming > 0
}

// Adopt makes the run of a sandbox that ran before, under an earlier daemon or
// before a sleep, and takes up what is unfinished in it. Time limits of commands
// begin anew at b's start. The caller holds the sandbox's lock.
func (s *Sandboxes) Adopt(ctx context.Context, b sandbox.Sandbox) (*Run, error) {
	r := s.newRun(b)
	if err := r.resume(ctx); err != nil {
		r.execs.suspend()
		r.cancel()
		r.execs.pumps.Wait()
		r.out.accepting.Wait()
		r.execs.letGo(make(secrets))
		return nil, err
	}
	// Nobody puts a command before those that are taken up.
	s.publish(r)
	s.changes.tell(b.UID)
	if b.Spec.Isolation == sandbox.Container { // others have a kernel of their own
		s.cfg.Gate.Spawn(func(ctx context.Context) { r.helpKills(ctx, nil) })
	}
	return r, nil
}

// carriedTo returns the secrets that a suspended run left to the next.
func (s *Sandboxes) carriedTo(box sandbox.UID) secrets {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.carried[box]
}

// settled forgets what a suspended run left, which the next has or nobody will.
func (s *Sandboxes) settled(box sandbox.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.carried, box)
}

// since is when time limits begin that count from an exec's start: a sandbox that
// slept gives its commands all of their time again, because its agent's clock
// stood still and the host's did not.
func (r *Run) since(started time.Time) time.Time {
	if r.began.After(started) {
		return r.began
	}
	return started
}
