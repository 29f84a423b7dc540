// Package poll asks again and again about what takes a moment and tells nobody when
// it is done, as the kernel's removal of a cgroup: soon at first, then less and less
// often. It is for waits that somebody bounds; what is tried again for as long as a
// service lives has its own pauses.
package poll

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

var errNotYet = errors.New("not yet")

// Until calls done until it is true, with a pause of first after the first call
// and twice as long after each, at most longest. It returns done's error at once,
// and the cause of ctx's end when that comes first; done is called at least once.
func Until(ctx context.Context, first, longest time.Duration, done func() (bool, error)) error {
	// All at the same times: what is asked is the kernel of this machine, which
	// many askers do not overwhelm.
	pauses := &backoff.ExponentialBackOff{InitialInterval: first, Multiplier: 2, MaxInterval: longest}
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		ok, err := done()
		switch {
		case err != nil:
			err = backoff.Permanent(err)
		case !ok:
			err = errNotYet
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0)) // ctx is the only limit
	return err
}
