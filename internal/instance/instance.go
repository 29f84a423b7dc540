// Package instance is the identity of a data directory, and sees to it that one host
// uses only one of several directories that have the same.
//
// A copy of a data directory has the identity of the original, and its sandboxes have
// the same uids: with both in use, the daemon of one would take what the other runs for
// its own. A directory that was moved keeps its identity, and what runs of it goes on.
package instance

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/poll"
)

// FileName is where an identity is, in the data directory.
const FileName = "instance.json"

// Registry is where the daemons of a host agree on who uses an identity. It does not
// outlive the host, and neither do sandboxes.
const Registry = "/run/cubby/instances"

// Instance is the identity of a data directory.
type Instance struct {
	ID string `json:"id"`
	// Cgroups is the cgroup below which its sandboxes have theirs.
	Cgroups string `json:"cgroups"`
}

// New is an identity that nobody has.
func New() Instance {
	id := strings.ToLower(rand.Text())
	return Instance{ID: id, Cgroups: "cubby-" + id[:8]}
}

// Of returns the identity of a data directory, which gets one if it has none, with
// those cgroups unless "".
func Of(dir, cgroups string) (Instance, error) {
	data, err := os.ReadFile(filepath.Join(dir, FileName))
	if errors.Is(err, fs.ErrNotExist) {
		i := New()
		if cgroups != "" {
			i.Cgroups = cgroups
		}
		return i, i.Write(dir)
	}
	var i Instance
	if err == nil {
		err = json.Unmarshal(data, &i)
	}
	if err == nil && (!name(i.ID) || !name(i.Cgroups)) {
		err = errors.New("it names no instance")
	}
	if err != nil {
		return i, errs.E(errs.Unavailable, "the identity of the data directory cannot be read: %s: %v", filepath.Join(dir, FileName), err)
	}
	return i, nil
}

// name says whether something can be the name of a file and of a cgroup.
func name(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// Write gives a directory the identity, in the place of one that it has.
func (i Instance) Write(dir string) error {
	data, err := json.Marshal(i)
	if err == nil {
		err = renameio.WriteFile(filepath.Join(dir, FileName), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("note the identity of the data directory: %w", err)
	}
	return nil
}

// Claim is the use of an identity by a daemon. It ends with the process in any case.
type Claim struct {
	file *os.File
	runs func() (bool, error)
}

// place is what is written in the registry: which directory used the identity last.
type place struct {
	Dir    string `json:"dir"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// patience is how long a claim waits for a daemon that was killed a moment ago: a
// process that it was about to start has its files until it is another program.
const patience = 5 * time.Second

// Claim takes an identity for a data directory, whose own lock the caller has.
// errs.Conflict where a copy is in use: by a daemon, or by sandboxes that go on without
// one, which runs tells of this identity.
func (i Instance) Claim(registry, dir string, runs func() (bool, error)) (*Claim, error) {
	file, err := lock(filepath.Join(registry, i.ID))
	if err != nil {
		return nil, err
	}
	c := &Claim{file: file, runs: runs}
	if err := c.take(dir); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return c, nil
}

func (c *Claim) take(dir string) error {
	mine, err := placeOf(dir)
	if err != nil {
		return err
	}
	last, found := readPlace(c.file)
	if found && (last.Device != mine.Device || last.Inode != mine.Inode) {
		runs, err := c.runs()
		if err != nil {
			return err
		}
		if runs {
			return errs.E(errs.Conflict, "%s is a copy of %s, whose sandboxes still run", dir, last.Dir).
				Hint("stop or remove them with a daemon of %s first; a copy that is to be used beside it is made with cubby backup and cubby restore", last.Dir)
		}
	}
	data, err := json.Marshal(mine)
	if err == nil {
		err = c.file.Truncate(0)
	}
	if err == nil {
		_, err = c.file.WriteAt(data, 0)
	}
	if err != nil {
		return fmt.Errorf("note which data directory is used: %w", err)
	}
	return nil
}

// Close ends the use. As long as sandboxes run it stays noted which directory is theirs.
func (c *Claim) Close() error {
	if runs, err := c.runs(); err == nil && !runs {
		_ = os.Remove(c.file.Name()) // lock looks whether it has the file that there is
	}
	return c.file.Close()
}

// lock opens the file of an identity and holds its lock until it is closed.
func lock(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("lock the identity of the data directory: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var file *os.File
	err := poll.Until(ctx, time.Millisecond, 20*time.Millisecond, func() (_ bool, err error) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return false, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && current(f) {
			file = f
			return true, nil
		}
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = nil
		}
		return false, os.NewSyscallError("flock", err)
	})
	switch {
	case err == nil:
		return file, nil
	case ctx.Err() == nil:
		return nil, fmt.Errorf("lock the identity of the data directory: %w", err)
	}
	other, _ := os.ReadFile(path)
	var by place
	_ = json.Unmarshal(other, &by)
	return nil, errs.E(errs.Conflict, "this data directory is a copy of %s, which another daemon uses", by.Dir).
		Hint("stop that daemon; a copy that is to be used beside it is made with cubby backup and cubby restore")
}

// current says whether a file still has its name.
func current(f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(f.Name())
	return err == nil && os.SameFile(mine, named)
}

func placeOf(dir string) (place, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return place{}, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	return place{Dir: dir, Device: st.Dev, Inode: st.Ino}, nil
}

func readPlace(f *os.File) (p place, found bool) {
	data := make([]byte, 8<<10) // longer than any path
	n, _ := f.ReadAt(data, 0)
	return p, json.Unmarshal(data[:n], &p) == nil && p.Dir != ""
}
