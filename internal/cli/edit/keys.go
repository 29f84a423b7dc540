package edit

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

const ctrlC = 3

// Keys are what is typed on a terminal in raw mode. One goroutine at a time
// reads them.
type Keys struct {
	pieces <-chan []byte   // closed at the end of the input
	held   []byte          // typed and not read yet
	ctx    context.Context //nolint:containedctx // an io.Reader has no other place for it
	lend   func(typed func([]byte)) (takeBack func(), err error)
}

// ReadKeys reads for as long as the terminal is open: a read that waits can be taken
// back only by [Keys.Lend], and where from is a file.
func ReadKeys(from io.Reader) *Keys {
	pieces := make(chan []byte)
	k := &Keys{pieces: pieces, ctx: context.Background()}
	wait, end := func() bool { return true }, func() {}
	if f, ok := from.(*os.File); ok {
		if turns, err := newTurns(f); err == nil {
			wait, end = turns.wait, turns.end
			k.lend = func(typed func([]byte)) (func(), error) { return turns.lend(pieces, typed) }
		}
	}
	go func() {
		defer close(pieces)
		defer end()
		for wait() {
			buf := make([]byte, 1024)
			n, err := from.Read(buf)
			if n > 0 {
				pieces <- buf[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	return k
}

// Lend lets another program read the terminal until takeBack. What was typed before is
// kept for the next line. It is an error where that is not possible.
func (k *Keys) Lend() (takeBack func(), err error) {
	if k.lend == nil {
		return nil, errNotLent
	}
	return k.lend(func(piece []byte) { k.held = append(k.held, piece...) })
}

// Pieces are the keys as they come, for those who wait for something else too and [Keys.Hold]
// them. It is closed at the end of the input.
func (k *Keys) Pieces() <-chan []byte { return k.pieces }

// Hold keeps a piece for the next line, and reports a Ctrl-C, which takes with
// it what was typed before.
func (k *Keys) Hold(piece []byte) (interrupted bool) {
	if at := bytes.LastIndexByte(piece, ctrlC); at >= 0 {
		k.held = slices.Clone(piece[at+1:])
		return true
	}
	k.held = append(k.held, piece...)
	return false
}

// Interrupted reports a Ctrl-C among the keys that were held, as Hold does.
func (k *Keys) Interrupted() bool {
	held := k.held
	k.held = nil
	return k.Hold(held)
}

// Read is ErrInterrupted at a Ctrl-C, and what ended the context after that.
func (k *Keys) Read(p []byte) (int, error) {
	if len(k.held) == 0 {
		select {
		case piece, ok := <-k.pieces:
			if !ok {
				return 0, io.EOF
			}
			k.held = piece
		case <-k.ctx.Done():
			return 0, k.ctx.Err()
		}
	}
	if k.held[0] == ctrlC {
		k.held = k.held[1:]
		return 0, ErrInterrupted
	}
	// Not beyond a line: the rest of a piece may be for another reader.
	part := k.held
	if at := bytes.IndexByte(part, ctrlC); at >= 0 {
		part = part[:at]
	}
	if at := bytes.IndexAny(part, "\r\n"); at >= 0 {
		part = part[:at+1]
	}
	n := copy(p, part)
	k.held = k.held[n:]
	return n, nil
}

// turns decides who reads a terminal: the keys, or another program.
type turns struct {
	fd     int
	woken  *os.File // a pipe: what is written to wake ends a wait
	wake   *os.File
	asked  chan struct{} // somebody wants the terminal
	theirs chan struct{} // they have it
	back   chan struct{}
	ended  chan struct{} // closed when the keys have ended
}

func newTurns(f *os.File) (*turns, error) {
	t := &turns{
		fd: int(f.Fd()), asked: make(chan struct{}, 1), theirs: make(chan struct{}), back: make(chan struct{}),
		ended: make(chan struct{}),
	}
	var err error
	t.woken, t.wake, err = os.Pipe()
	return t, err
}

// wait returns when there is something to read. False: it cannot be known any more.
func (t *turns) wait() bool {
	woken := t.woken.Fd()
	for {
		fds := []unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLIN}, {Fd: int32(woken), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		if err == unix.EINTR {
			continue
		}
		select {
		case <-t.asked:
			var b [1]byte
			if _, err := t.woken.Read(b[:]); err != nil { // what is written for it
				return false
			}
			t.theirs <- struct{}{}
			<-t.back
			continue
		default:
		}
		if err != nil {
			return false
		}
		if fds[0].Revents != 0 {
			return true
		}
	}
}

func (t *turns) end() {
	close(t.ended)
	_, _ = t.woken.Close(), t.wake.Close() // nothing was kept for it
}

// lend waits until the keys do not read any more. They may have a piece in their hands
// that nobody else takes: typed does.
func (t *turns) lend(pieces <-chan []byte, typed func([]byte)) (takeBack func(), err error) {
	select {
	case <-t.ended:
		return nil, errNotLent
	default:
	}
	t.asked <- struct{}{}
	if _, err := t.wake.Write([]byte{0}); err != nil {
		return nil, errNotLent // the keys are ending
	}
	for {
		select {
		case piece, ok := <-pieces:
			if !ok {
				pieces = nil
			}
			typed(piece)
		case <-t.theirs:
			return func() { t.back <- struct{}{} }, nil
		case <-t.ended:
			return nil, errNotLent
		}
	}
}
