package proc

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Everything below /proc/PID is text that a process can shape (its name) or
// that can vanish between two reads; what cannot be parsed does not exist.

// processInfo is one line of the process table.
type processInfo struct {
	parent  int
	session int
	zombie  bool
	name    string
	rss     int64 // pages
	since   int64 // start, in clock ticks after the kernel's
}

// processTable reads every process that /proc shows. With an error, which only
// an agent that lacks descriptors or memory gets, the table lacks some: then
// who is not in it may live all the same.
func processTable() (map[int]processInfo, error) {
	table := make(map[int]processInfo)
	all, unread := pids()
	buf := make([]byte, maxStat)
	for _, pid := range all {
		b, err := readStat(pid, buf)
		if p, ok := parseStat(b); ok {
			table[pid] = p
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			unread = err
		}
	}
	return table, unread
}

func pids() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	var out []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			out = append(out, pid)
		}
	}
	return out, err
}

func readProcess(pid int) (processInfo, bool) {
	b, _ := readStat(pid, make([]byte, maxStat))
	return parseStat(b)
}

// maxStat is more than /proc/PID/stat has.
const maxStat = 4096

// readStat reads /proc/PID/stat into buf. At the end of a command that of every
// process is read: this takes three system calls, and a file of package os seven.
func readStat(pid int, buf []byte) ([]byte, error) {
	fd, err := uninterrupted(func() (int, error) {
		return unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	n, err := uninterrupted(func() (int, error) { return unix.Read(fd, buf) })
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// uninterrupted does a system call again that a signal kept from beginning.
func uninterrupted(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// parseStat reads /proc/PID/stat. The name stands in parentheses and may
// itself hold any byte, so the fields are counted from the last one.
func parseStat(b []byte) (processInfo, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return processInfo{}, false
	}
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 22 {
		return processInfo{}, false
	}
	parent, err1 := strconv.Atoi(f[1])
	session, err2 := strconv.Atoi(f[3])
	since, err3 := strconv.ParseInt(f[19], 10, 64)
	rss, err4 := strconv.ParseInt(f[21], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return processInfo{}, false
	}
	return processInfo{
		parent:  parent,
		session: session,
		// Where only the first thread of several has ended, the others go on.
		zombie: f[0] == "Z" && (f[17] == "0" || f[17] == "1") || f[0] == "X",
		name:   strings.ToValidUTF8(string(b[open+1:end]), "\uFFFD"),
		rss:    rss,
		since:  since,
	}, true
}

func readProc(pid int, file string, limit int64) []byte {
	return readBounded("/proc/"+strconv.Itoa(pid)+"/"+file, limit)
}

func readBounded(path string, limit int64) []byte {
	b, _ := readWhole(path, limit)
	return b
}

func readWhole(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// descendants are the live processes below root, without root.
func descendants(table map[int]processInfo, root int) map[int]bool {
	children := make(map[int][]int)
	for pid, p := range table {
		children[p.parent] = append(children[p.parent], pid)
	}
	in := make(map[int]bool)
	seen := map[int]bool{root: true}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, pid := range children[queue[0]] {
			// A snapshot that was not taken at one moment can hold a circle.
			if seen[pid] {
				continue
			}
			seen[pid] = true
			queue = append(queue, pid)
			if !table[pid].zombie {
				in[pid] = true
			}
		}
	}
	return in
}

// hasEnviron reports whether the process was started with this KEY=VALUE.
func hasEnviron(pid int, kv string) bool {
	env := readProc(pid, "environ", 1<<20)
	return slices.ContainsFunc(bytes.Split(env, []byte{0}), func(e []byte) bool { return string(e) == kv })
}

func keys(m map[int]bool) []int { return slices.Collect(maps.Keys(m)) }

func newMark() string { return rand.Text() }
