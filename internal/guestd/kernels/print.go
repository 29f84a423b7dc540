package kernels

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/kernel"
)

// kernelPrint is what a kernel's process writes to its own standard streams,
// beside what the kernel shows by message: programs that cells start do, and
// an interpreter that crashes. It is the running cell's, or the next one's; of
// all of it the end is kept, for a kernel that does not come up.
type kernelPrint struct {
	// shown: the kernel shows it by message too, as those made of ipykernel do,
	// so cells have it already.
	shown bool
	done  chan struct{} // closed when both streams ended
	inUse chan struct{} // closed when it says before its first cell that an address is in use
	cells kernel.Backlog

	mu      sync.Mutex
	streams []*os.File // stdout and stderr
	used    bool       // a cell ran: what comes is of cells
	said    bool       // inUse is closed
	last    []byte
	buf     [8 << 10]byte
}

const (
	// printKept is how much of the end is kept.
	printKept = 4 << 10
	// drainMost bounds what one cell waits for: others can go on writing.
	drainMost = 256 << 10
)

// follow reads both streams until their end, so that nothing ever waits.
func (p *kernelPrint) follow(ctx context.Context, out, errs *os.File) {
	defer close(p.done)
	defer p.close()
	p.mu.Lock()
	p.streams = []*os.File{out, errs}
	p.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		_ = out.SetReadDeadline(time.Unix(1, 0))
		_ = errs.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { p.read(out, proc.Stdout) })
	both.Go(func() { p.read(errs, proc.Stderr) })
	both.Wait()
}

func (p *kernelPrint) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.streams {
		f.Close()
	}
	p.streams = nil
}

func (p *kernelPrint) read(f *os.File, s proc.Stream) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	for n := 1; n > 0; {
		err := raw.Read(func(fd uintptr) bool {
			// Under the lock, so that nothing is on its way while drain looks.
			p.mu.Lock()
			defer p.mu.Unlock()
			var err error
			n, err = unix.Read(int(fd), p.buf[:])
			if err == unix.EAGAIN || err == unix.EINTR {
				n = 1
				return err == unix.EINTR
			}
			p.take(s, p.buf[:max(n, 0)])
			return true
		})
		if err != nil {
			return
		}
	}
}

// take passes bytes on. p.mu is held.
func (p *kernelPrint) take(s proc.Stream, b []byte) {
	if len(b) > 0 && p.used && !p.shown {
		name := "stdout"
		if s == proc.Stderr {
			name = "stderr"
		}
		p.cells.Add(kernel.Output{Stream: &kernel.Stream{Name: name, Text: string(b)}})
	}
	p.last = append(p.last, b...)
	if over := len(p.last) - printKept; over > 0 {
		p.last = append(p.last[:0], p.last[over:]...)
	}
	if !p.used && !p.said && addressInUse(string(p.last)) {
		p.said = true
		close(p.inUse)
	}
}

// addressInUse reports whether a text has the system's words for a port that
// somebody else has.
func addressInUse(text string) bool {
	return strings.Contains(strings.ToLower(text), "address already in use")
}

// attach makes what comes from now on, and what came since the last cell ended,
// the output of a cell.
func (p *kernelPrint) attach(show func(kernel.Output)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain()
	p.used = true
	p.cells.Begin(show)
}

// detach gives the cell what was written for it.
func (p *kernelPrint) detach() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain()
	p.cells.End()
}

// drain takes what is in the pipes. p.mu is held.
func (p *kernelPrint) drain() {
	for i, f := range p.streams {
		raw, err := f.SyscallConn()
		if err != nil {
			continue
		}
		_ = raw.Control(func(fd uintptr) {
			for left := drainMost; left > 0; left -= len(p.buf) {
				n, err := unix.Read(int(fd), p.buf[:])
				if n <= 0 && err != unix.EINTR {
					return
				}
				p.take(proc.Stream(i)+proc.Stdout, p.buf[:max(n, 0)])
			}
		})
	}
}

// text is the last lines, at most 1800 bytes.
func (p *kernelPrint) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.last
	if over := len(b) - 1800; over > 0 {
		b = b[over:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD"))
}
