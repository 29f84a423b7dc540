package core

import (
	"context"
	"sync"
)

// keyedLocks is a lock per key. The zero value is ready to use.
type keyedLocks struct {
	mu    sync.Mutex
	locks map[string]*keyedLock // guarded by mu; an entry lives while somebody holds or wants it
}

type keyedLock struct {
	users int           // holders and waiters; guarded by keyedLocks.mu
	held  chan struct{} // has a token while the lock is held
}

// lock waits for the lock of key and returns the function that gives it back;
// it returns ctx's error when ctx ends first.
func (k *keyedLocks) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	l := k.locks[key]
	if l == nil {
		l = &keyedLock{held: make(chan struct{}, 1)}
		if k.locks == nil {
			k.locks = make(map[string]*keyedLock)
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

// tryLock is lock without waiting; ok is false when somebody holds it.
func (k *keyedLocks) tryLock(key string) (unlock func(), ok bool) {
	k.mu.Lock()
	busy := k.locks[key] != nil
	if !busy {
		l := &keyedLock{users: 1, held: make(chan struct{}, 1)}
		l.held <- struct{}{}
		if k.locks == nil {
			k.locks = make(map[string]*keyedLock)
		}
		k.locks[key] = l
		unlock = sync.OnceFunc(func() { k.unlock(key, l) })
	}
	k.mu.Unlock()
	return unlock, !busy
}

func (k *keyedLocks) unlock(key string, l *keyedLock) {
	<-l.held
	k.leave(key, l)
}

// leave takes one user away from l and forgets it after the last.
func (k *keyedLocks) leave(key string, l *keyedLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}
