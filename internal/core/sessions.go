package core

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/session"
)

// SessionStatus is what a session does.
type SessionStatus string

const (
	SessionIdle   SessionStatus = "idle"
	SessionBusy   SessionStatus = "busy"   // a command runs
	SessionQueued SessionStatus = "queued" // commands wait and none runs
)

// Session is a session shell of a sandbox: a state that was saved, commands,
// or both.
type Session struct {
	Name       string
	Cwd        string // "" before a command has ended
	Status     SessionStatus
	RunningSeq int64 // 0: none
	Pending    int   // commands that wait
	LastUsedAt time.Time
}

// maxSessions bounds how many are listed: their states are the guest's to make.
const maxSessions = 1000

// stateRoots are where the states of sessions are. Those of other users than the
// sandbox's usual one are seen while it runs.
func stateRoots(a *access) []string {
	roots := []string{sandbox.HomeDir + "/" + session.Dir}
	if a.run != nil {
		roots = append(roots, "/"+session.OthersDir)
	}
	return roots
}

// Sessions is the session shells of sandboxes: the state that each has saved,
// and its commands.
type Sessions struct{ s *Service }

// List lists the sessions of a sandbox by name. It is no activity.
func (h *Sessions) List(ctx context.Context, id string) ([]Session, error) {
	a, err := h.look(ctx, id)
	if err != nil {
		return nil, err
	}
	defer a.Done()
	all, err := savedSessions(ctx, a)
	if err != nil {
		return nil, err
	}
	if a.run != nil {
		for name, q := range a.run.SessionQueues() {
			if !q.Busy() {
				continue
			}
			is := all[name]
			is.Name, is.Status, is.RunningSeq, is.Pending, is.LastUsedAt = name, SessionQueued, q.Running, q.Waiting, h.s.cfg.Now()
			if q.Running != 0 {
				is.Status = SessionBusy
			}
			all[name] = is
		}
	}
	list := make([]Session, 0, len(all))
	for _, is := range all {
		list = append(list, is)
	}
	slices.SortFunc(list, func(a, b Session) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// look is open without the use of the sandbox that it is.
func (h *Sessions) look(ctx context.Context, id string) (*access, error) {
	b, err := h.s.scope.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	if b.State == sandbox.Stopped || b.State == sandbox.Sleeping {
		tree, done, err := h.s.sandboxes.OpenStopped(ctx, b)
		if err != nil {
			return nil, err
		}
		return &access{Access: &transfer.Access{Files: tree, Box: b, Done: done}}, nil
	}
	_, r, err := h.s.live.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	return &access{Access: &transfer.Access{Files: r.Guest, Box: b, Done: func() {}}, run: r}, nil
}

// savedSessions reads what states there are, of any user; the latest counts.
func savedSessions(ctx context.Context, a *access) (map[string]Session, error) {
	all := make(map[string]Session)
	for dir, err := range stateDirs(ctx, a) {
		if err != nil {
			return nil, err
		}
		name := path.Base(dir)
		is, known := all[name]
		if !known && len(all) >= maxSessions {
			break
		}
		is.Name, is.Status = name, SessionIdle
		r, f, err := a.Read(ctx, path.Join(dir, session.File), 0, 16<<10)
		if err == nil {
			h, err := session.ReadHeader(r)
			r.Close()
			if err == nil && f.ModTime.After(is.LastUsedAt) {
				is.Cwd, is.LastUsedAt = h.Cwd, f.ModTime
			}
		} else if errors.Is(err, errs.Unavailable) {
			return nil, err
		}
		all[name] = is
	}
	return all, nil
}

// stateDirs gives the directories of sessions, of every user.
func stateDirs(ctx context.Context, a *access) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, root := range stateRoots(a) {
			for user, err := range a.ListFiles(ctx, root, false) {
				if errors.Is(err, errs.NotFound) {
					break
				}
				if err != nil {
					yield("", err)
					return
				}
				if _, err := strconv.ParseUint(path.Base(user.Path), 10, 32); err != nil || user.Type != sandbox.Directory {
					continue
				}
				if !sessionsOf(ctx, a, user.Path, yield) {
					return
				}
			}
		}
	}
}

// sessionsOf gives those of one user; false when no more are wanted.
func sessionsOf(ctx context.Context, a *access, dir string, yield func(string, error) bool) bool {
	for f, err := range a.ListFiles(ctx, dir, false) {
		if errors.Is(err, errs.NotFound) {
			return true
		}
		if err != nil {
			yield("", err)
			return false
		}
		if f.Type != sandbox.Directory || sandbox.ValidateName("session", path.Base(f.Path)) != nil {
			continue
		}
		if !yield(f.Path, nil) {
			return false
		}
	}
	return true
}

// Forget removes the state of a session: its next command begins anew.
// WrongState while it has commands, NotFound when there is no such session.
func (h *Sessions) Forget(ctx context.Context, id, name string) error {
	if err := sandbox.ValidateName("session", name); err != nil {
		return err
	}
	a, err := h.s.open(ctx, id)
	if err != nil {
		return err
	}
	defer a.Done()
	if a.run != nil {
		unlock, err := a.run.LockQueue(ctx, name)
		if err != nil {
			return err
		}
		defer unlock()
		if a.run.Queue(name).Busy() {
			return errs.E(errs.WrongState, "the session has commands that run or wait").Hint("wait for them, or cancel them")
		}
	}
	found := false
	for dir, err := range stateDirs(ctx, a) {
		if err != nil {
			return err
		}
		if path.Base(dir) != name {
			continue
		}
		if err := a.Remove(ctx, dir, true); err != nil {
			return err
		}
		found = true
	}
	if !found {
		return errs.E(errs.NotFound, "no such session")
	}
	h.s.recorder.Note(ctx, event.New(a.Box.UID, scope.Actor(ctx), event.SessionForget{Session: name}))
	return nil
}
