package guestd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
)

// identity is whose the sandbox is: what its commands are told of it. The host
// gives it, at the boot or later: the service answers on connections that the
// agent dialled to the host's socket and on no other, so nothing inside can.
type identity struct {
	mu       sync.Mutex // one Identify at a time
	id       string     // guarded by mu
	env      []string   // guarded by mu
	warnings []string   // of the last Copied; guarded by mu
}

// Identify implements the guest service. The kernel's host name is the agent's
// to set where the kernel is the sandbox's own (gVisor), where the agent has
// CAP_SYS_ADMIN for its cgroups anyway. In a container it has not, and should
// not: there the host sets the name from outside, in the container's UTS
// namespace, and the answer says what it is.
func (s *Server) Identify(ctx context.Context, req *connect.Request[guestv1.IdentifyRequest]) (*connect.Response[guestv1.IdentifyResponse], error) {
	to := req.Msg
	if to.GetId() == "" {
		return nil, errs.E(errs.Invalid, "an identity has an id")
	}
	if !validEnv(to.GetEnv()) {
		return nil, errs.E(errs.Invalid, "the environment is malformed")
	}
	copied := to.GetCopied()
	if copied != nil && !validSecret(copied.GetSecret()) {
		return nil, errs.E(errs.Invalid, "the secret is malformed")
	}
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	is := &s.identity
	same := is.id == to.GetId() && slices.Equal(is.env, to.GetEnv())
	if !same && is.id != to.GetReplaces() {
		return nil, errs.E(errs.Conflict, "the sandbox is %q, and not %q", is.id, to.GetReplaces())
	}
	if s.cfg.Init {
		if err := rename(to.GetId()); err != nil {
			return nil, proc.Classify(err, "name the sandbox")
		}
	}
	is.id, is.env = to.GetId(), slices.Clone(to.GetEnv())
	s.procs.SetEnv(is.env)
	s.kernels.Refresh()
	name, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	res := &guestv1.IdentifyResponse{Hostname: name}
	if copied != nil {
		if !s.up.knows(copied.GetSecret()) {
			is.warnings = s.leaveParent(ctx, copied.GetSecret())
			s.up.rekey(copied.GetSecret())
		}
		res.Copied, res.Warnings = true, is.warnings
	}
	return connect.NewResponse(res), nil
}

// rename gives the machine another name, in its files and then in the kernel,
// which knows the name of before until they have the new one. It may be repeated, and
// leaves a machine alone that has the name, as after a rollback: what the sandbox made of
// the files is its own.
func rename(to string) error {
	from, err := os.Hostname()
	if err != nil || from == to {
		return err
	}
	if err := rewrite("/etc/hosts", func(text []byte) []byte { return renameHost(text, from, to) }); err != nil {
		return err
	}
	if err := rewrite("/etc/hostname", func([]byte) []byte { return []byte(to + "\n") }); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(to)); err != nil && !errors.Is(err, unix.EPERM) {
		return os.NewSyscallError("sethostname", err)
	}
	return nil
}

// ownAddress is what the machine's own name means, beside localhost.
const ownAddress = "127.0.1.1"

// renameHost puts a name in the place of another in a hosts file, on the line of
// ownAddress, and leaves all else as the sandbox has it.
func renameHost(text []byte, from, to string) []byte {
	var out bytes.Buffer
	named := false
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != ownAddress {
			out.WriteString(line)
			continue
		}
		names := slices.DeleteFunc(fields[1:], func(name string) bool { return name == from || name == to })
		if !named {
			names = append([]string{to}, names...)
			named = true
		}
		if len(names) > 0 {
			fmt.Fprintf(&out, "%s\t%s\n", ownAddress, strings.Join(names, " "))
		}
	}
	if !named {
		if out.Len() > 0 && !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "%s\t%s\n", ownAddress, to)
	}
	return out.Bytes()
}

// maxNamesFile bounds a file that is rewritten: the sandbox's root may have made it
// any size, and one that is larger is left alone.
const maxNamesFile = 1 << 20

// rewrite changes a file in place: it is mounted, and cannot be replaced. The new
// text is written over the old before that is cut off, so that a full disk takes
// nothing away. A name that leads elsewhere, or that is no file any more, is the
// sandbox's own doing and left alone.
//
// It is half of what a sandbox from the pool waits for: this takes five system calls,
// and a file of package os ten.
func rewrite(path string, change func([]byte) []byte) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EISDIR) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if is.Mode&unix.S_IFMT != unix.S_IFREG || is.Size > maxNamesFile {
		return nil
	}
	old := make([]byte, is.Size)
	n, err := whole(old, func(part []byte, at int64) (int, error) { return unix.Pread(fd, part, at) })
	if err != nil {
		return &os.PathError{Op: "read", Path: path, Err: err}
	}
	text := change(old[:n])
	if bytes.Equal(old[:n], text) {
		return nil
	}
	switch done, err := whole(text, func(part []byte, at int64) (int, error) { return unix.Pwrite(fd, part, at) }); {
	case err != nil:
		return &os.PathError{Op: "write", Path: path, Err: err}
	case done < len(text):
		return &os.PathError{Op: "write", Path: path, Err: io.ErrShortWrite}
	}
	if len(text) < n {
		if err := unix.Ftruncate(fd, int64(len(text))); err != nil {
			return &os.PathError{Op: "truncate", Path: path, Err: err}
		}
	}
	return nil
}

// whole does a system call until it has done all of data, or no more of it.
func whole(data []byte, call func(part []byte, at int64) (int, error)) (done int, err error) {
	for done < len(data) {
		n, err := call(data[done:], int64(done))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || n == 0:
			return done, err
		default:
			done += n
		}
	}
	return done, nil
}
