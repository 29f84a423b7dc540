package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// memoryShort is said of sandboxes that were put to sleep for others.
const memoryShort = "the host ran short of memory"

// restAfter is how long a sandbox is unused before it is put to sleep for others:
// whoever uses it may just have got an answer.
const restAfter = 10 * time.Second

// resting is a sandbox that may be put to sleep for others.
type resting struct {
	run    *live.Run
	use    live.Attention
	memory int64 // bytes that it has
	kept   bool  // somebody wants it to run though nobody uses it
}

// isKept reports whether somebody wants a sandbox to run though nobody uses it.
func isKept(spec sandbox.Spec, use live.Attention) bool {
	return use.Lease > 0 || spec.IdlePolicy == sandbox.IdleAlwaysOn || spec.IdleTimeout <= 0 || spec.AutoWake == sandbox.AutoWakeNever
}

// chooseResting says which sandboxes are put to sleep to get so many bytes, in this
// order: those that are kept last, and only when the shortage is dire; before that
// the longest unused, in minutes; of those the heaviest.
func chooseResting(all []resting, s admission.Shortage, need int64) (chosen []resting) {
	may := slices.DeleteFunc(slices.Clone(all), func(r resting) bool {
		return s == admission.NoShortage || r.use.InUse || r.use.Unused < restAfter || r.kept && s != admission.Dire
	})
	slices.SortStableFunc(may, func(a, b resting) int {
		if a.kept != b.kept {
			if a.kept {
				return 1
			}
			return -1
		}
		return cmp.Or(
			cmp.Compare(b.use.Unused/time.Minute, a.use.Unused/time.Minute),
			cmp.Compare(b.memory, a.memory),
		)
	})
	for _, r := range may {
		if need <= 0 {
			break
		}
		chosen = append(chosen, r)
		need -= r.memory
	}
	return chosen
}

// relieve looks at the host's memory and puts sandboxes to sleep when it is short.
// One look waits for the sleeps of the one before: only then their memory is free.
func (s *reaper) relieve(ctx context.Context, start starter) {
	reserve := s.cfg.Settings.MemoryReserve
	if reserve <= 0 || s.relieving.Load() > 0 {
		return
	}
	free, err := s.admission.Free()
	s.troubles.Note("measure the host's memory", "", err)
	if err != nil {
		return
	}
	now := admission.DecideShortage(free, reserve)
	if now == admission.NoShortage {
		return
	}
	given := s.pool.GiveUp(math.MaxInt)
	if stocker, ok := driver.As[driver.Stocker](s.cfg.Driver); ok {
		given += stocker.GiveUp()
	}
	if given > 0 {
		return // what that brings is seen at the next look
	}
	var all []resting
	for _, r := range s.cfg.Live.All() {
		spec, use := r.Spec(), r.Attention()
		if use.InUse {
			continue
		}
		box := resting{run: r, use: use, kept: isKept(spec, use)}
		if stats, err := s.cfg.Driver.Stats(ctx, r.Handle); err == nil {
			box.memory = stats.MemoryBytes
		}
		all = append(all, box)
	}
	for _, box := range chooseResting(all, now, reserve+admission.BootMemory-free) {
		s.relieving.Add(1)
		if !start(box.run.UID, memoryShort, func(ctx context.Context) error {
			defer s.relieving.Add(-1)
			return yielding{s.acts}.restFor(ctx, box.run, sandbox.Why{Cause: sandbox.CauseMemory, Reason: memoryShort})
		}) {
			s.relieving.Add(-1)
		}
	}
}

// restFor puts a sandbox to sleep unless somebody comes to use it.
func (s yielding) restFor(ctx context.Context, r *live.Run, why sandbox.Why) error {
	unlock, free := s.ids.TryLock(r.ID.Key())
	if !free {
		return nil // somebody uses it
	}
	defer unlock()
	if s.cfg.Live.Of(r.UID) != r {
		return nil
	}
	b, err := s.cfg.Store.SandboxByUID(ctx, r.UID)
	if err != nil {
		return err
	}
	_, err = s.sleep(ctx, b, false, why)
	if errors.Is(err, errs.InUse) {
		err = nil
	}
	return err
}
