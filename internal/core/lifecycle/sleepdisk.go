package lifecycle

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// memoryGivenUp is said of sleepers whose memory made room for that of others.
const memoryGivenUp = "its memory was given up, because the memories of sleeping sandboxes took more of the host's disk than sleep-disk; its files are kept"

// sleeper is a sandbox that sleeps, and what its memory takes of the host's disk.
type sleeper struct {
	uid   sandbox.UID
	since time.Time
	bytes int64
}

// chooseGivenUp says which sleepers lose their memory so that those of the others
// take no more than limit: the ones that have slept longest. One of which nothing is
// seen stays: to stop it need not make any room.
func chooseGivenUp(all []sleeper, limit int64) (chosen []sandbox.UID) {
	if limit <= 0 {
		return nil
	}
	var total int64
	for _, s := range all {
		total += s.bytes
	}
	byAge := slices.Clone(all)
	slices.SortStableFunc(byAge, func(a, b sleeper) int { return a.since.Compare(b.since) })
	for _, s := range byAge {
		if total <= limit {
			break
		}
		if s.bytes == 0 {
			continue
		}
		chosen = append(chosen, s.uid)
		total -= s.bytes
	}
	return chosen
}

// boundSleepDisk gives up the memory of the oldest sleepers where all of them take
// too much of the host's disk.
func (s *reaper) boundSleepDisk(ctx context.Context) error {
	all, err := s.sleepers(ctx)
	if err != nil {
		return err
	}
	for _, uid := range chooseGivenUp(all, s.cfg.Settings.SleepDiskBytes) {
		if err := s.giveUp(ctx, uid); err != nil {
			return err
		}
	}
	return nil
}

// sleepers are those of this daemon's driver.
func (s *reaper) sleepers(ctx context.Context) (all []sleeper, err error) {
	found, err := s.cfg.Driver.List(ctx)
	if err != nil {
		return nil, err
	}
	bytes := make(map[sandbox.UID]int64, len(found))
	for _, f := range found {
		bytes[f.UID] = f.Status.MemoryOnDisk
	}
	rows, err := s.rows(ctx, store.Query{States: []sandbox.State{sandbox.Sleeping}})
	for _, b := range rows {
		all = append(all, sleeper{b.UID, b.StoppedAt, bytes[b.UID]})
	}
	return all, err
}

// giveUp stops a sleeper. Its cause stays, and with it whether a use starts it.
func (s *reaper) giveUp(ctx context.Context, uid sandbox.UID) error {
	b, err := s.cfg.Store.SandboxByUID(ctx, uid)
	if err != nil {
		return err
	}
	unlock, free := s.ids.TryLock(b.ID.Key())
	if !free {
		return nil // it is being woken
	}
	defer unlock()
	if b, err = s.cfg.Store.SandboxByUID(ctx, uid); err != nil || b.State != sandbox.Sleeping {
		return err
	}
	s.cfg.Log.Info("give up the memory of a sandbox", telemetry.KeySandbox, b.ID, telemetry.KeyUID, b.UID)
	_, err = s.halt(ctx, b, 0, sandbox.Why{Cause: cmp.Or(b.Cause, sandbox.CauseSleep), Reason: memoryGivenUp})
	return err
}
