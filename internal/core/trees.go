package core

import (
	"context"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// treeKept is how long the disk of a stopped sandbox stays mounted after its
// files were last used through the API.
const treeKept = time.Minute

// trees knows which disks of stopped sandboxes are mounted for their files, so
// that ten thousand stopped sandboxes do not hold as many mounts.
type trees struct {
	mu   sync.Mutex
	used map[sandbox.UID]*treeUse // by the sandbox's uid; guarded by mu
}

type treeUse struct {
	b     sandbox.Sandbox
	users int
	last  time.Time
}

// use counts one use of a stopped sandbox's files until done.
func (t *trees) use(b sandbox.Sandbox, now func() time.Time) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used == nil {
		t.used = make(map[sandbox.UID]*treeUse)
	}
	u := t.used[b.UID]
	if u == nil {
		u = &treeUse{b: b}
		t.used[b.UID] = u
	}
	u.users++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		u.users--
		u.last = now()
	})
}

// unused takes out those that nobody uses any more.
func (t *trees) unused(now time.Time) (all []sandbox.Sandbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid, u := range t.used {
		if u.users == 0 && now.Sub(u.last) >= treeKept {
			delete(t.used, uid)
			all = append(all, u.b)
		}
	}
	return all
}

func (t *trees) inUse(uid sandbox.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.used[uid]
	return u != nil && u.users > 0
}

// closeTrees unmounts the disks of stopped sandboxes whose files nobody uses
// any more.
func (s *Service) closeTrees(ctx context.Context) {
	for _, b := range s.trees.unused(s.now()) {
		if err := s.closeTree(ctx, b); err != nil && ctx.Err() == nil {
			s.log.Warn("unmount the disk of a stopped sandbox", telemetry.KeyUID, b.UID, telemetry.KeyErr, err)
		}
	}
}

func (s *Service) closeTree(ctx context.Context, b sandbox.Sandbox) error {
	unlock, free := s.ids.TryLock(b.ID.Key())
	if !free {
		return nil // whoever is at it looks after the disk
	}
	defer unlock()
	if s.trees.inUse(b.UID) {
		return nil // uses begin under the lock, so this one came in between
	}
	b, err := s.cfg.Store.SandboxByUID(ctx, b.UID)
	if err != nil || b.State != sandbox.Stopped && b.State != sandbox.Sleeping {
		return err
	}
	return s.unmount(ctx, b)
}
