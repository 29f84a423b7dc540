package workspace

import (
	"sync"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// keyed is a mutex per disk.
type keyed struct {
	mu sync.Mutex
	m  map[sandbox.UID]*keyedEntry // guarded by mu
}

type keyedEntry struct {
	mu    sync.Mutex
	users int // guarded by keyed.mu
}

// lock waits for the disk's turn and returns what ends it.
func (k *keyed) lock(uid sandbox.UID) (unlock func()) {
	k.mu.Lock()
	if k.m == nil {
		k.m = map[sandbox.UID]*keyedEntry{}
	}
	e := k.m[uid]
	if e == nil {
		e = &keyedEntry{}
		k.m[uid] = e
	}
	e.users++
	k.mu.Unlock()
	e.mu.Lock()
	return func() {
		e.mu.Unlock()
		k.mu.Lock()
		if e.users--; e.users == 0 {
			delete(k.m, uid)
		}
		k.mu.Unlock()
	}
}
