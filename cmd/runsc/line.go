package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/flag"

	"github.com/cubbyhq/cubby/internal/collector"
)

// lineAnnotation is of a specification whose kernel is made before it has files of
// its own: the directory of the bundle, in which somebody listens who gives it them.
const lineAnnotation = "dev.cubby.line"

// lineName is the socket in that directory.
const lineName = "line"

// sentryLine is the end of the line to a kernel's process at which files are given.
type sentryLine struct {
	listener *net.UnixListener
	conn     *net.UnixConn
}

// openLine listens for the kernel of a container that is about to be made.
func openLine(bundle string) (*sentryLine, error) {
	path, done, err := linePath(bundle)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the bundle goes as a whole
	return &sentryLine{listener: l}, nil
}

// linePath is the socket of a bundle through a descriptor: the paths of sockets have
// 107 bytes.
func linePath(bundle string) (path string, done func(), err error) {
	dir, err := unix.Open(bundle, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("open %s: %w", bundle, err)
	}
	return filepath.Join("/proc/self/fd", strconv.Itoa(dir), lineName), func() { _ = unix.Close(dir) }, nil
}

// lineTime is far more than a kernel needs to call, which it does before it is made, or to
// take its files. aheadTime is as much for what it does ahead, which it may have a hundredth
// of a processor for.
const (
	lineTime  = 5 * time.Second
	aheadTime = 15 * time.Second
)

// meet takes the call of the kernel.
func (l *sentryLine) meet() (err error) {
	defer func() { _ = l.listener.Close() }()
	if err := l.listener.SetDeadline(time.Now().Add(lineTime)); err != nil {
		return err
	}
	if l.conn, err = l.listener.AcceptUnix(); err != nil {
		return fmt.Errorf("the kernel does not call: %w", err)
	}
	return nil
}

// made tells the kernel that it has been made, and returns when it has prepared itself for
// a sandbox.
func (l *sentryLine) made() error {
	if err := l.conn.SetDeadline(time.Now().Add(aheadTime)); err != nil {
		return err
	}
	_, err := l.conn.Write([]byte{word})
	if err == nil {
		_, err = io.ReadFull(l.conn, make([]byte, 1))
	}
	if err != nil {
		return fmt.Errorf("the kernel has not prepared itself: %w", err)
	}
	return nil
}

func (l *sentryLine) close() {
	_ = l.listener.Close()
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// word goes over the line when the kernel was made, and with its files, and comes back each
// time when the kernel has done its part.
const word = 1

// give has the kernel hold stores in the place of those that it was made with. After
// that the kernel has no line any more.
func (l *sentryLine) give(stores []*os.File) error {
	if err := l.conn.SetDeadline(time.Now().Add(lineTime)); err != nil {
		return err
	}
	fds := make([]int, len(stores))
	for i, f := range stores {
		fds[i] = int(f.Fd())
	}
	if _, _, err := l.conn.WriteMsgUnix([]byte{word}, unix.UnixRights(fds...), nil); err != nil {
		return fmt.Errorf("give the kernel its files: %w", err)
	}
	if answer, err := io.ReadAll(l.conn); err != nil || !bytes.Equal(answer, []byte{word}) {
		return errors.Join(errors.New("the kernel did not take its files"), err)
	}
	return nil
}

// takeStores has this process, which becomes a kernel, do something ahead once it has
// been made, and take the stores that are [sentryLine.give]n to it, if its specification says
// that somebody does. Until then it ends with whoever made it.
func takeStores(spec *specs.Spec, f *flag.FlagSet, ahead func() error) error {
	bundle := spec.Annotations[lineAnnotation]
	if bundle == "" {
		return nil
	}
	held, err := heldStores(f)
	if err != nil {
		return err
	}
	line, err := dial(bundle)
	if err != nil {
		return err
	}
	go func() {
		// No filter of system calls is in place yet: that comes when the kernel
		// begins, which waits for the end of the line.
		err := awaitMade(line)
		if err == nil {
			err = ahead()
		}
		if err == nil {
			_, err = unix.Write(line, []byte{word})
		}
		if err == nil {
			err = replace(line, held)
		}
		if err != nil {
			log.Warningf("nobody needs this kernel any more: %v", err)
			os.Exit(1)
		}
		collector.Later(beginTime, beginHeap, 0)
		_, _ = unix.Write(line, []byte{word})
		_ = unix.Close(line)
	}()
	return nil
}

// heldStores are the descriptors of the stores that upstream passes to this process.
func heldStores(f *flag.FlagSet) (fds []int, err error) {
	stores := f.Lookup("gofer-filestore-fds")
	if stores == nil {
		return nil, errors.New("upstream passes no stores")
	}
	for s := range strings.SplitSeq(stores.Value.String(), ",") {
		fd, err := strconv.Atoi(s)
		if err != nil {
			return nil, fmt.Errorf("the descriptors of the stores: %w", err)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// dial opens the kernel's end of the line. It does without Go's poller, which a kernel
// does not have.
func dial(bundle string) (line int, err error) {
	path, done, err := linePath(bundle)
	if err != nil {
		return -1, err
	}
	defer done()
	if line, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(line, &unix.SockaddrUnix{Name: path}); err != nil {
		_ = unix.Close(line)
		return -1, os.NewSyscallError("connect", err)
	}
	return line, nil
}

// awaitMade returns when this process has become a kernel.
func awaitMade(line int) error {
	var n int
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(line, make([]byte, 1))
	}
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// replace puts files that come over a line in the place of others.
func replace(line int, held []int) error {
	message, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4*len(held)))
	var n, size int
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		n, size, _, _, err = unix.Recvmsg(line, message, rights, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil || n == 0 {
		return errors.Join(io.ErrUnexpectedEOF, err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:size])
	if err != nil {
		return err
	}
	var files []int
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return err
		}
		files = append(files, fds...)
	}
	if len(files) != len(held) {
		return fmt.Errorf("%d files in the place of %d", len(files), len(held))
	}
	for i, fd := range files {
		if err := unix.Dup3(fd, held[i], unix.O_CLOEXEC); err != nil {
			return err
		}
		_ = unix.Close(fd)
	}
	return nil
}
