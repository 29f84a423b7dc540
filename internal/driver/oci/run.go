package oci

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/capability"
	"github.com/cubbyhq/cubby/internal/channel"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/pidfd"
	"github.com/cubbyhq/cubby/internal/errs"
)

// record is what is written down of a run, so that a later daemon finds it: it
// is there from before the first process until after the last one.
type record struct {
	// Secret proves to the channel that the agent of this run dials.
	Secret string `json:"secret"`
	// NextSecret is what the agent of a restored sandbox is given in the place of
	// Secret, which is its parent's; "": it has one of its own.
	NextSecret string `json:"next_secret,omitempty"`
	// PID is the host's id of the process with which the run ends: PID 1 of a
	// container, gVisor's kernel. 0 while the runtime starts it.
	PID       int    `json:"pid,omitempty"`
	StartTime uint64 `json:"start_time,omitempty"`
	HostID    string `json:"host_id"` // boot of the host in which the pid means something
	// IDBase is where the run's range of the host's ids begins; 0: it has none,
	// or an earlier version started it and has it in its handle.
	IDBase uint32 `json:"id_base,omitempty"`
	// Sleeping: its memory is being kept, and it may be paused.
	Sleeping bool `json:"sleeping,omitempty"`
	// Paused: the time limits of its agent may stand still.
	Paused bool `json:"paused,omitempty"`
	// Waking: it comes out of a kept memory, which is still there.
	Waking bool `json:"waking,omitempty"`
	// Stopping: the end of the run was asked for, it is no death.
	Stopping bool `json:"stopping,omitempty"`
	// Death is how the run ended, once that was seen.
	Death *driver.Death `json:"death,omitempty"`
}

func (b box) record() (record, bool, error) {
	data, err := os.ReadFile(b.runFile())
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, false, nil
	}
	if err != nil {
		return record{}, false, errs.E(errs.Unavailable, "the note of the sandbox's run cannot be read").RetryAfter(5 * time.Second).Because(err)
	}
	var r record
	if len(data) == 0 || data[0] == 0 {
		// What a crash of the host can leave of it. No run outlived that.
		return r, true, nil
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, false, errs.E(errs.Internal, "damaged note of a run").Because(err)
	}
	return r, true, nil
}

func (b box) setRecord(r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return b.replace(b.runFile(), data)
}

// replace writes a file atomically: the daemon may die at any moment. It is not
// synced to the disk: after a crash of the host no run is left that it could speak
// of.
func (b box) replace(path string, data []byte) error {
	next, err := os.CreateTemp(b.dir, ".next-")
	if err != nil {
		return err
	}
	_, err = next.Write(data)
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		_ = os.Remove(next.Name())
	}
	return err
}

// run is what this process holds of a running sandbox.
type run struct {
	process *pidfd.Process
	agent   capability.Known

	watched sync.WaitGroup
	dead    chan struct{} // closed when the process has ended

	forks sync.Mutex // held while the limit of processes is not the sandbox's

	mu       sync.Mutex
	channel  *channel.Listener // guarded by mu; nil where nobody listens
	stopping bool              // guarded by mu
	death    *driver.Death     // guarded by mu
	behind   chan struct{}     // closed when what was left to do is done; nil: nothing was; guarded by mu
}

// hold takes hold of a running process.
func hold(p *pidfd.Process, l *channel.Listener) *run {
	r := &run{process: p, channel: l, dead: make(chan struct{})}
	r.watched.Go(func() {
		if p.Wait() == nil {
			close(r.dead)
		}
	})
	return r
}

// line is the channel to the agent.
func (r *run) line() *channel.Listener {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.channel
}

// setLine gives the run another channel, after the end of the one that it had.
func (r *run) setLine(l *channel.Listener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.channel = l
}

// setStopping notes whether the end of the run is asked for.
func (r *run) setStopping(yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = yes
}

// leave does what nobody has to wait for but release.
func (r *run) leave(f func()) {
	done := make(chan struct{})
	r.mu.Lock()
	before := r.behind
	r.behind = done
	r.mu.Unlock()
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		f()
	}()
}

// release lets go of everything; the sandbox goes on.
func (r *run) release() {
	if l := r.line(); l != nil {
		_ = l.Close()
	}
	r.process.Close()
	r.watched.Wait()
	r.mu.Lock()
	behind := r.behind
	r.mu.Unlock()
	if behind != nil {
		<-behind
	}
}

// awaitEnd waits for the end of a run that was killed, so that those who wait
// for it hear of it before release takes away what tells them.
func (r *run) awaitEnd(ctx context.Context) error {
	if r.ended() {
		return nil
	}
	t := time.NewTimer(endPatience)
	defer t.Stop()
	select {
	case <-r.dead:
		return nil
	case <-t.C:
		return errs.E(errs.Unavailable, "a process of the sandbox does not end, although it was killed")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endPatience is how long a killed process may take to end that has left its cgroup.
const endPatience = 10 * time.Second

func (r *run) ended() bool {
	select {
	case <-r.dead:
		return true
	default:
		return false
	}
}
