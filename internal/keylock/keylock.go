// Package keylock is a lock for each of many keys, as sandboxes and tenants are:
// who waits for one key does not wait for another, and a key that nobody holds
// takes no memory. It knows nothing of what its keys name.
package keylock

import (
	"context"
	"sync"
)

// Locks is a lock per key. The zero value is ready to use.
type Locks struct {
	mu    sync.Mutex
	locks map[string]*entry // guarded by mu; an entry lives while somebody holds or wants it
}

type entry struct {
	users int           // holders and waiters; guarded by Locks.mu
	held  chan struct{} // has a token while the lock is held
}

// Lock waits for the lock of key and returns the function that gives it back;
// it returns ctx's error when ctx ends first.
func (k *Locks) Lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	l := k.locks[key]
	if l == nil {
		l = &entry{held: make(chan struct{}, 1)}
		if k.locks == nil {
			k.locks = make(map[string]*entry)
		}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()

	select {
	case l.held <- struct{}{}:
		return sync.OnceFunc(func() { k.unlock(key, l) }), nil
	case <-ctx.Done():
		k.leave(key, l)
		return nil, ctx.Err()
	}
}

// Wait is Lock for as long as it takes.
func (k *Locks) Wait(key string) (unlock func()) {
	unlock, _ = k.Lock(context.Background(), key) // only a context makes it fail
	return unlock
}

// TryLock is Lock without waiting; ok is false when somebody holds it.
func (k *Locks) TryLock(key string) (unlock func(), ok bool) {
	k.mu.Lock()
	busy := k.locks[key] != nil
	if !busy {
		l := &entry{users: 1, held: make(chan struct{}, 1)}
		l.held <- struct{}{}
		if k.locks == nil {
			k.locks = make(map[string]*entry)
		}
		k.locks[key] = l
		unlock = sync.OnceFunc(func() { k.unlock(key, l) })
	}
	k.mu.Unlock()
	return unlock, !busy
}

func (k *Locks) unlock(key string, l *entry) {
	<-l.held
	k.leave(key, l)
}

// leave takes one user away from l and forgets it after the last.
func (k *Locks) leave(key string, l *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}
