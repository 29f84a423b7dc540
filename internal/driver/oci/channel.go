package oci

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/channel"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// listen opens the channel of a run that is about to start.
func (d *Driver) listen(n note, rec record) (*channel.Listener, error) {
	b := d.box(n.UID)
	if n.Isolation == sandbox.Container {
		if err := b.mountChannel(n.IDBase); err != nil {
			return nil, err
		}
	}
	return d.listenAgain(b, rec)
}

// listenAgain is [Driver.listen] for a run that goes on.
func (d *Driver) listenAgain(b box, rec record) (*channel.Listener, error) {
	l, err := channel.Listen(b.socket(), rec.Secret, d.log.With("box", b.uid))
	if err != nil {
		return nil, err
	}
	if rec.NextSecret != "" {
		l.Rekey(rec.NextSecret) // the agent may have it already
	}
	// The agent may be nobody to the host. Its directory keeps others away.
	if err := os.Chmod(b.socket(), 0o666); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// mountChannel gives the channel a file system of its own: of a part of the
// host's, a container sees the path in /proc/self/mountinfo. Its owner is the
// container's root.
func (b box) mountChannel(owner uint32) error {
	options := fmt.Sprintf("mode=0700,uid=%d,gid=%d,size=64k,nr_inodes=64", owner, owner)
	if err := unix.Mount("cubby", b.channel(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount the channel: %w", err)
	}
	return nil
}
