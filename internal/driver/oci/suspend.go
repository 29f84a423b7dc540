package oci

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
	"github.com/cubbyhq/cubby/internal/driver/oci/pidfd"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/poll"
)

// suspension is a run that is about to be paused, or is.
type suspension struct {
	to        memory.Memory
	lock      io.Closer
	cmd       *exec.Cmd
	complaint *bytes.Buffer
	in        io.WriteCloser
	out       *bufio.Reader
	hold      bool
	held      bool // it is paused until another byte comes
}

// suspend readies the runtime to pause a run and to write its memory and its root
// filesystem. With hold the run is resumed in the end, also when this process has
// ended. Each suspension ends with close.
func (d *Driver) suspend(ctx context.Context, n note, p *pidfd.Process, to memory.Memory, root string, hold bool) (*suspension, error) {
	if err := d.fits(bundle{note: n, box: d.box(n.UID)}.savedSize, 1); err != nil {
		return nil, err
	}
	if err := errors.Join(to.Begin(p.Program()), os.RemoveAll(root), os.Mkdir(root, 0o700)); err != nil {
		return nil, err
	}
	cmd, lock, err := d.runsc(ctx, n, p.Program(), "suspend", fmt.Sprintf("--hold=%v", hold), "--image-path="+to.HalfImage(), "--root-path="+root)
	if err != nil {
		return nil, err
	}
	s := &suspension{to: to, lock: lock, cmd: cmd, complaint: new(bytes.Buffer), hold: hold}
	cmd.Stderr = s.complaint
	out, err := cmd.StdoutPipe()
	if err == nil {
		s.out = bufio.NewReader(io.LimitReader(out, maxWord))
		s.in, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// maxWord is how much is read of what the runtime says.
const maxWord = 64

// save pauses the run and returns when it was written.
func (s *suspension) save() error {
	defer s.to.WriteBehind()()
	_, err := s.in.Write([]byte{1})
	if err == nil {
		var said string
		if said, err = s.out.ReadString('\n'); err == nil && said != "saved\n" {
			err = fmt.Errorf("the runtime says %q", said)
		}
	}
	if err != nil {
		return errors.Join(s.close(), err)
	}
	s.held = s.hold
	return nil
}

// close waits for the end of the runtime's command, and of the pause with hold.
func (s *suspension) close() error {
	if s.cmd == nil {
		return nil
	}
	if s.held {
		// The end of what it reads is seen late: a program that is being started has a
		// copy of the pipe until it is executed.
		_, _ = s.in.Write([]byte{1})
	}
	_ = s.in.Close()
	err := complained(s.cmd.Wait(), s.complaint.Bytes())
	s.cmd = nil
	return errors.Join(err, s.lock.Close())
}

// complained adds to an error of the runtime what it said.
func complained(err error, out []byte) error {
	if err != nil && bytes.Contains(out, []byte(syscall.ENOSPC.Error())) {
		err = errors.Join(err, syscall.ENOSPC)
	}
	if err != nil {
		return fmt.Errorf("%w: %.500s", err, bytes.TrimSpace(out)) // it adds the stacks of its kernel
	}
	return nil
}

// exhausted classifies a full disk.
func exhausted(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return errs.E(errs.Exhausted, "the host's disk is full").Because(err)
	}
	return err
}

// sync puts the files of a sandbox onto the disk.
func (n note) sync() error {
	synced := make(map[uint64]bool)
	for _, dir := range n.dirs() {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return err
		}
		if synced[st.Dev] {
			continue
		}
		synced[st.Dev] = true
		if err := syncFilesystem(dir); err != nil {
			return fmt.Errorf("sync the sandbox's disk: %w", err)
		}
	}
	return nil
}

func syncFilesystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd())))
}

// goOn ends the pause of a run whose memory was not kept, if it is paused: a
// daemon that was killed may have come to that or not. Whether the run goes on is
// told by its agent.
func (d *Driver) goOn(ctx context.Context, n note, p *pidfd.Process, rec record) error {
	b := d.box(n.UID)
	// First of all, since it may be what fills the disk. What the runtime does for a
	// daemon that was killed may still write there: what is left then goes below.
	_ = b.tidy()
	paused := d.proceed(context.WithoutCancel(ctx), n, p)
	if paused != nil {
		d.log.Error("a pause that was given up has not ended well", "box", n.UID, "err", paused)
	}
	// Nothing is written there any more.
	if err := b.tidy(); err != nil {
		return err
	}
	if paused != nil {
		return nil // the notes go on to say it, until the agent answers
	}
	rec.Sleeping = false
	if err := b.setRecord(rec); err != nil {
		// What is written there only has this done once more.
		d.log.Warn("a pause that was given up is still in the notes", "box", n.UID, "err", err)
	}
	return nil
}

// proceed resumes a run if it is paused.
func (d *Driver) proceed(ctx context.Context, n note, p *pidfd.Process) error {
	ctx, cancel := context.WithTimeout(ctx, sleepLimit)
	defer cancel()
	cmd, lock, err := d.runsc(ctx, n, p.Program(), "proceed")
	if err != nil {
		return err
	}
	defer lock.Close()
	out, err := cmd.CombinedOutput()
	return complained(err, out)
}

// runsc is a command to a run, by the program that runs it, and the lock that
// belongs to it.
func (d *Driver) runsc(ctx context.Context, n note, program, command string, flags ...string) (*exec.Cmd, io.Closer, error) {
	b := d.box(n.UID)
	lock, err := b.lockRuntime(ctx)
	if err != nil {
		return nil, nil, err
	}
	args := append(append(bundle{note: n, box: b}.runscFlags(), command), flags...)
	cmd := exec.CommandContext(ctx, program, append(args, b.runtimeID())...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.ExtraFiles = []*os.File{lock}
	cmd.WaitDelay = time.Second
	return cmd, lock, nil
}

// awaitRuntime waits until no command to a run goes on, whose sandbox was killed.
func (b box) awaitRuntime(ctx context.Context) error {
	f, err := os.OpenFile(b.path("sleep.lock"), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return awaitLock(ctx, f)
}

// lockRuntime takes the lock that commands to a run hold. They inherit it, so
// that it is held until the last of them has ended, also without this process:
// that may be one that a killed daemon began, and that hangs.
func (b box) lockRuntime(ctx context.Context) (*os.File, error) {
	f, err := os.OpenFile(b.path("sleep.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := awaitLock(ctx, f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// awaitLock takes the lock of a file when it is free.
func awaitLock(ctx context.Context, f *os.File) error {
	return poll.Until(ctx, time.Millisecond, 10*time.Millisecond, func() (bool, error) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		return true, os.NewSyscallError("flock", err)
	})
}
