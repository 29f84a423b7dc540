package proc

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Files are the descriptors that a command gets, from 0 on. Those that nothing
// was made of are /dev/null.
type Files struct {
	fds  []int
	null int
}

// Files returns the descriptors of a command that is to be started with
// [Runner.Start].
func (r *Runner) Files() *Files {
	null := int(r.null.Fd())
	return &Files{fds: []int{null, null, null}, null: null}
}

// Pipe makes descriptor n, which is one that exists or the next, the command's
// end of a pipe and returns the agent's, which reads when reading is set.
func (f *Files) Pipe(n int, reading bool) (*os.File, error) {
	ours, theirs, err := pipe(reading)
	if err != nil {
		return nil, err
	}
	if n == len(f.fds) {
		f.fds = append(f.fds, theirs)
	} else {
		f.fds[n] = theirs
	}
	return ours, nil
}

// Close closes the command's ends here, so that theirs are the last.
func (f *Files) Close() {
	open := f.fds
	f.fds = nil
	for i, fd := range open {
		// A terminal is one descriptor three times.
		if fd != f.null && !slices.Contains(open[:i], fd) {
			_ = unix.Close(fd)
		}
	}
}

// pipe returns a pipe whose first end is ours, and pollable; ours reads when
// reading is set.
func pipe(reading bool) (ours *os.File, theirs int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, -1, os.NewSyscallError("pipe", err)
	}
	flags := unix.O_WRONLY
	if !reading {
		p[0], p[1] = p[1], p[0]
		flags = unix.O_RDONLY
	}
	// Non-blocking is a property of one end; the command's is what it expects.
	if _, err := unix.FcntlInt(uintptr(p[1]), unix.F_SETFL, flags); err != nil {
		_ = unix.Close(p[0])
		_ = unix.Close(p[1])
		return nil, -1, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(p[0]), "|"), p[1], nil
}
