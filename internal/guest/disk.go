package guest

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Disk says whether writes to the disks of the client's sandbox go through. While
// they do not, no call waits for them: it ends with what these say.
type Disk struct {
	Writable func() error // as far as is known; it is cheap
	Examine  func() error // after a look; nil when there is nothing to look at

	// Sync is asked after a write where the agent would not learn that it was lost.
	Sync func(ctx context.Context) error
}

// synced is whether what the agent has written is on the disk. One whose kernel hides
// errors of its fsync cannot tell, so the host is asked.
func (c *Client) synced(ctx context.Context) error {
	if c.sync == nil || c.Require(ctx, sandbox.AgentHonestSyncs) == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, heldPatience)
	defer cancel()
	return c.sync(ctx)
}

const (
	// heldPatience is how long a call waits for writers that are held.
	heldPatience = 10 * time.Second
	heldLook     = time.Second
)

// diskTrips are round trips that do not outlast what happens to a disk.
type diskTrips struct {
	http.RoundTripper

	disk Disk
}

func diskBound(t http.RoundTripper, disk Disk) http.RoundTripper {
	if disk.Writable == nil {
		return t
	}
	return diskTrips{t, disk}
}

func (d diskTrips) RoundTrip(r *http.Request) (*http.Response, error) {
	if !answersOnce(r) {
		return d.RoundTripper.RoundTrip(r)
	}
	if err := d.disk.Writable(); err != nil && writes(r) {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := d.watch(cancel)
	end := func() { stop(); cancel(nil) }
	res, err := d.RoundTripper.RoundTrip(r.WithContext(ctx))
	switch {
	case err != nil:
		defer end()
		if r.Context().Err() == nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	case res.StatusCode == http.StatusForbidden || res.StatusCode >= http.StatusInternalServerError:
		if err := d.disk.Examine(); err != nil {
			res.Body.Close()
			end()
			return nil, err
		}
	}
	res.Body = &endingBody{res.Body, end}
	return res, nil
}

// watch cancels a call with the reason when it has waited for held writers for long
// enough, until stop.
func (d diskTrips) watch(cancel context.CancelCauseFunc) (stop func()) {
	var (
		mu      sync.Mutex
		timer   *time.Timer
		held    time.Duration // guarded by mu
		stopped bool          // guarded by mu
	)
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		err := d.disk.Writable()
		if held += heldLook; err == nil {
			held = 0
		}
		if held >= heldPatience {
			cancel(err)
			return
		}
		timer.Reset(heldLook)
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(heldLook, look)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// endingBody ends a call when its answer has been read.
type endingBody struct {
	io.ReadCloser

	end func()
}

func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// answersOnce reports whether a request has one answer that comes when all is done.
// Others are streams: they may wait for as long as what they tell of.
func answersOnce(r *http.Request) bool {
	return r.Method == http.MethodPut || r.Method == http.MethodPost && !strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+")
}

// writes reports whether a request can do nothing but write to a disk.
func writes(r *http.Request) bool {
	return r.Method == http.MethodPut || slices.Contains([]string{
		guestv1connect.GuestServiceMakeDirProcedure, guestv1connect.GuestServiceRenameProcedure, guestv1connect.GuestServiceRemoveProcedure,
	}, r.URL.Path)
}
