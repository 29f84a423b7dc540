package proc

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxSocketTable bounds what is read of the kernel's table of sockets.
const maxSocketTable = 8 << 20

// Listener is a TCP port that something listens on.
type Listener struct {
	Port    uint16
	Program string // name of a process that has the socket; "": cannot be told
	PID     int    // of that process; 0: cannot be told
}

// Listeners returns the ports of loopback that something listens on, by number,
// without those that skip names. The programs are those that the caller can see:
// of a process that hides its descriptors nothing is known. It ends early with ctx.
func Listeners(ctx context.Context, skip func(port uint16) bool) ([]Listener, error) {
	sockets, err := listenTable(skip)
	if err != nil {
		return nil, err
	}
	found := make(map[uint16]Listener)
	for _, port := range sockets {
		found[port] = Listener{Port: port}
	}
	all, _ := pids() // those that could be read
	owners(ctx, sockets, all, func(port uint16, pid int) {
		// Of several processes that share a socket the first one made it.
		if l := found[port]; l.PID == 0 || pid < l.PID {
			found[port] = Listener{Port: port, PID: pid}
		}
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	list := make([]Listener, 0, len(found))
	for _, l := range found {
		if p, ok := readProcess(l.PID); ok {
			l.Program = p.name
		}
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b Listener) int { return int(a.Port) - int(b.Port) })
	return list, nil
}

// Ports returns the ports of loopback that the process or one below it listens
// on. What cannot be read has none.
func (p *Process) Ports() (ports []int) {
	sockets, _ := listenTable(func(uint16) bool { return false })
	owners(context.Background(), sockets, append(p.Members(), p.PID()), func(port uint16, _ int) { ports = append(ports, int(port)) })
	return ports
}

// listenTable returns the ports that something listens on by the inodes of the
// sockets, without those that skip names.
func listenTable(skip func(port uint16) bool) (map[uint64]uint16, error) {
	sockets := make(map[uint64]uint16)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := readWhole(table, maxSocketTable)
		if errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
			continue
		}
		if err != nil {
			return nil, Classify(err, "the table of sockets")
		}
		for line := range strings.Lines(string(text)) {
			if s, ok := parseListener(line); ok && !skip(s.port) {
				sockets[s.inode] = s.port
			}
		}
	}
	return sockets, nil
}

// listening is a socket that listens.
type listening struct {
	port  uint16
	inode uint64
}

// stateListen is TCP_LISTEN in the kernel's table.
const stateListen = "0A"

// parseListener reads one line of /proc/net/tcp or tcp6. It reports false for
// what is not a socket that a connection to loopback reaches.
func parseListener(line string) (listening, bool) {
	f := strings.Fields(line)
	if len(f) < 10 || f[3] != stateListen {
		return listening{}, false
	}
	host, port, ok := strings.Cut(f[1], ":")
	number, err1 := strconv.ParseUint(port, 16, 16)
	inode, err2 := strconv.ParseUint(f[9], 10, 64)
	if !ok || err1 != nil || err2 != nil || number == 0 || !onLoopback(host) {
		return listening{}, false
	}
	return listening{uint16(number), inode}, true
}

// onLoopback reports whether an address of the table is one that answers on
// 127.0.0.1 or ::1. The table has it as words of the host's byte order.
func onLoopback(host string) bool {
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw)%4 != 0 {
		return false
	}
	for word := range slices.Chunk(raw, 4) {
		binary.BigEndian.PutUint32(word, binary.NativeEndian.Uint32(word))
	}
	addr, ok := netip.AddrFromSlice(raw)
	addr = addr.Unmap()
	return ok && (addr.IsUnspecified() || addr == netip.IPv6Loopback() || addr == netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}

// owners calls found for each of the processes that has one of the sockets, until
// ctx ends.
func owners(ctx context.Context, sockets map[uint64]uint16, pids []int, found func(port uint16, pid int)) {
	if len(sockets) == 0 {
		return
	}
	for _, pid := range pids {
		if ctx.Err() != nil {
			return
		}
		dir := "/proc/" + strconv.Itoa(pid)
		inodes, err := socketsOf(dir + "/fd")
		if errors.Is(err, fs.ErrPermission) {
			inodes = socketsAsOwner(dir)
		}
		for _, inode := range inodes {
			if port, ok := sockets[inode]; ok {
				found(port, pid)
			}
		}
	}
}

// socketsOf returns the inodes of the sockets in a directory of descriptors.
func socketsOf(dir string) (inodes []uint64, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	fd, buf := int(d.Fd()), make([]byte, len("socket:[18446744073709551615]"))
	for _, name := range names {
		var n int
		if n, err = unix.Readlinkat(fd, name, buf); err != nil {
			continue
		}
		text, ok := strings.CutPrefix(string(buf[:n]), "socket:[")
		if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64); ok && err == nil {
			inodes = append(inodes, inode)
		}
	}
	return inodes, err
}

// socketsAsOwner is socketsOf of a process with the file system ids of its
// user: the agent of a container has no CAP_SYS_PTRACE, and what a process has
// open is shown to its own user only. Where these ids cannot be taken it returns
// none.
func socketsAsOwner(dir string) (inodes []uint64) {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return nil
	}
	owner := info.Sys().(*syscall.Stat_t)
	runtime.LockOSThread() // the ids are the thread's
	defer func() {
		// With fsuid 0 the thread has the capabilities again that it had.
		_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0)
		_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, 0, 0, 0)
		runtime.UnlockOSThread()
	}()
	for call, id := range map[uintptr]uint32{unix.SYS_SETFSGID: owner.Gid, unix.SYS_SETFSUID: owner.Uid} {
		if _, _, errno := unix.RawSyscall(call, uintptr(id), 0, 0); errno != 0 {
			return nil
		}
	}
	inodes, _ = socketsOf(dir + "/fd")
	return inodes
}
