package oci

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
)

// orders are what the runtime of a sentry is told, see cmd/runsc.
type orders struct {
	Root    string   `json:"root"`
	Bundle  string   `json:"bundle"`
	PIDFile string   `json:"pid_file"`
	Stores  []string `json:"stores"`
	Image   string   `json:"image,omitempty"`
}

// errUnfit is of a sentry that did not become a sandbox's, before anything of the
// sandbox began: what began can begin without it.
var errUnfit = errors.New("the kernel that was started ahead is of no use")

// takeSentry returns a sentry for a run that is about to begin; nil where it begins
// without one.
func (d *Driver) takeSentry(b bundle, from *memory.Memory) *sentry {
	if _, err := os.Stat(b.box.saved()); err == nil && from == nil {
		return nil // a root filesystem that was saved is read as a sentry is made
	}
	return d.sentries.take(b.note)
}

// become makes a sentry that of a sandbox whose cgroup there is, and returns when its
// agent has its boot, or has come out of a memory that verify says nothing against.
// errUnfit when it could not.
func (d *Driver) become(ctx context.Context, k *sentry, b bundle, boot []byte, from *memory.Memory, verify func() error) error {
	defer k.release()
	defer d.sentries.became(k)
	o := orders{Root: b.box.runtime(), Bundle: b.box.bundle(), PIDFile: b.box.pidFile(), Stores: []string{b.overlayDir(), b.tmpDir()}}
	if from != nil {
		o.Image = from.Image()
		go verify() //nolint:errcheck // it is asked below
	}
	err := d.hand(k, b, o)
	if unsound := verify(); unsound != nil {
		return unsound
	}
	if err != nil {
		return errors.Join(errUnfit, err)
	}
	_, _ = k.orders.Write([]byte("true")) // it may have ended of something else
	_ = k.orders.Close()
	begun := func() bool {
		_, err := os.Stat(b.box.pidFile())
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer time.AfterFunc(sentryTime, func() {
		if !begun() {
			_ = k.cmd.Process.Kill()
		}
	}).Stop()
	err = attend(ctx, k.cmd, func() error { <-k.ended; return k.err }, k.boot, boot)
	if err != nil && !begun() && ctx.Err() == nil {
		return errors.Join(errUnfit, b.failed(ctx, err))
	}
	return b.failed(ctx, err)
}

// hand moves a sentry to where the sandbox is and gives it its orders.
func (d *Driver) hand(k *sentry, b bundle, o orders) error {
	was := d.box(k.uid)
	if err := d.cgroups.Group(k.uid).MoveTo(d.cgroups.Group(b.note.UID)); err != nil {
		return err
	}
	if err := b.layGVisor(); err != nil {
		return err
	}
	if err := os.RemoveAll(b.box.runtime()); err != nil {
		return err
	}
	if err := os.Rename(was.runtime(), b.box.runtime()); err != nil {
		return err
	}
	if err := os.Rename(was.log(), b.box.log()); err != nil {
		return err
	}
	return json.NewEncoder(k.orders).Encode(o)
}
