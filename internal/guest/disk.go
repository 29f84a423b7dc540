package guest

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Disk says whether writes to the disks of the client's sandbox go through. While
// they do not, no call waits for them: it ends with what these say. A command is no
// call: it is held with all that runs in the sandbox, and goes on with it.
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
	// heldPatience is how long a call waits for writers that are held: readers can
	// wait behind them.
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
	if slices.Contains(unbounded, r.URL.Path) {
		return d.RoundTripper.RoundTrip(r)
	}
	if err := d.disk.Writable(); err != nil && (r.Method == http.MethodPut || slices.Contains(writing, r.URL.Path)) {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	w := &heldWait{writable: d.disk.Writable, cancel: cancel, waiting: true}
	w.start()
	body := &boundBody{wait: w, ctx: ctx, caller: r.Context()}
	res, err := d.RoundTripper.RoundTrip(r.WithContext(ctx))
	if err != nil {
		defer w.stop()
		return nil, body.explain(err)
	}
	w.begin(false)
	if res.StatusCode == http.StatusForbidden || res.StatusCode >= http.StatusInternalServerError {
		if err := d.disk.Examine(); err != nil {
			res.Body.Close()
			w.stop()
			return nil, err
		}
	}
	body.ReadCloser, res.Body = res.Body, body
	return res, nil
}

// unbounded are the calls that last as long as what they tell of.
var unbounded = []string{guestv1connect.GuestServiceExecProcedure, guestv1connect.GuestServiceWatchProcedure}

// writing are the calls that can do nothing but write to a disk, as every PUT does.
var writing = []string{
	guestv1connect.GuestServiceMakeDirProcedure, guestv1connect.GuestServiceRenameProcedure, guestv1connect.GuestServiceRemoveProcedure,
}

// heldWait cancels a call, with the reason, that has waited for the agent for long
// enough while writers are held.
type heldWait struct {
	writable func() error
	cancel   context.CancelCauseFunc

	mu      sync.Mutex
	timer   *time.Timer   // guarded by mu
	held    time.Duration // guarded by mu
	waiting bool          // for the agent, not for who reads the answer; guarded by mu
	over    bool          // guarded by mu
}

// begin says whether the call waits for the agent from now on.
func (w *heldWait) begin(waiting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting, w.held = waiting, 0
}

func (w *heldWait) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(heldLook, w.look)
}

func (w *heldWait) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	if err := w.writable(); err == nil || !w.waiting {
		w.held = 0
	} else if w.held += heldLook; w.held >= heldPatience {
		w.cancel(err)
		return
	}
	w.timer.Reset(heldLook)
}

func (w *heldWait) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
	w.cancel(nil)
}

// boundBody is an answer that ends with its call.
type boundBody struct {
	io.ReadCloser

	wait   *heldWait
	ctx    context.Context //nolint:containedctx // the call's
	caller context.Context //nolint:containedctx // the caller's, which ends the call's
}

func (b *boundBody) Read(p []byte) (int, error) {
	b.wait.begin(true)
	n, err := b.ReadCloser.Read(p)
	b.wait.begin(false)
	return n, b.explain(err)
}

func (b *boundBody) Close() error {
	defer b.wait.stop()
	return b.ReadCloser.Close()
}

// explain gives the reason for a call that was canceled here.
func (b *boundBody) explain(err error) error {
	if err != nil && err != io.EOF && b.caller.Err() == nil && b.ctx.Err() != nil { //nolint:errorlint // the end of a body is io.EOF itself
		return context.Cause(b.ctx)
	}
	return err
}
