// Package kernellog reads in the kernel's log whom it killed for want of memory.
// The log is a ring: what is old is gone. It knows cgroups by their paths, and
// nothing of sandboxes.
package kernellog

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
)

const (
	device = "/dev/kmsg"
	// maxSize bounds what is read: the ring itself has a megabyte or so.
	maxSize = 16 << 20
)

// Kills returns what the log has of the cgroup at a path and of those below it.
func Kills(cgroup string) ([]driver.OOMKill, error) {
	text, err := read()
	if err != nil {
		return nil, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil, os.NewSyscallError("clock_gettime", err)
	}
	boot := time.Now().Add(-time.Duration(now.Nano()))
	return parseKills(text, cgroup, boot), nil
}

// read reads all records that the ring has, a line each.
func read() (string, error) {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: device, Err: err}
	}
	defer unix.Close(fd)
	var text strings.Builder
	record := make([]byte, 8192)
	for text.Len() < maxSize {
		n, err := unix.Read(fd, record)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EPIPE): // EPIPE: the ring overtook us
			continue
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			return text.String(), nil
		case err != nil:
			return "", &os.PathError{Op: "read", Path: device, Err: err}
		}
		line, _, _ := strings.Cut(string(record[:n]), "\n") // what follows are key=value lines
		text.WriteString(line)
		text.WriteByte('\n')
	}
	return text.String(), nil
}

// parseKills finds the kills in a cgroup or below it. Records are
// "prefix,sequence,microseconds,flags;message". A process chooses its own name,
// so what is searched for is found before it or counted from the end.
func parseKills(text, cgroup string, boot time.Time) []driver.OOMKill {
	var kills []driver.OOMKill
	for line := range strings.Lines(text) {
		head, message, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ";")
		if rest, ok := strings.CutPrefix(message, "oom-kill:"); ok {
			_, rest, _ = strings.Cut(rest, ",task_memcg=")
			group, rest, _ := strings.Cut(rest, ",task=")
			at := strings.LastIndex(rest, ",pid=")
			fields := strings.Split(head, ",")
			if at < 0 || len(fields) < 3 || !strings.HasSuffix(group, cgroup) && !strings.Contains(group, cgroup+"/") {
				continue
			}
			digits, _, _ := strings.Cut(rest[at+len(",pid="):], ",")
			pid, err := strconv.Atoi(digits)
			usec, timeErr := strconv.ParseInt(fields[2], 10, 64)
			if err != nil || timeErr != nil {
				continue
			}
			kills = append(kills, driver.OOMKill{At: boot.Add(time.Duration(usec) * time.Microsecond), Process: rest[:at], PID: pid})
			continue
		}
		// Its size comes a record later.
		if _, rest, ok := strings.Cut(message, "out of memory: Killed process "); ok && len(kills) > 0 {
			last := &kills[len(kills)-1]
			digits, _, _ := strings.Cut(rest, " ")
			at := strings.LastIndex(rest, ", anon-rss:")
			if at < 0 || digits != strconv.Itoa(last.PID) || last.Bytes != 0 {
				continue
			}
			kib, _, _ := strings.Cut(rest[at+len(", anon-rss:"):], "kB")
			if n, err := strconv.ParseUint(kib, 10, 53); err == nil {
				last.Bytes = int64(n) << 10
			}
		}
	}
	return kills
}
