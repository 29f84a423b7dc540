package kernels

import (
	"bytes"
	"sync"

	"github.com/cubbyhq/cubby/internal/errs"
)

// cellInput answers a cell's questions with the lines that the host writes.
type cellInput struct {
	wake chan struct{} // a token when there may be something to answer

	mu        sync.Mutex
	offset    int64
	lines     []byte // written and not used
	ended     bool   // the host writes no more
	closed    bool   // the cell has ended
	questions int    // that have no answer
}

const (
	// maxCellInput bounds what waits for questions.
	maxCellInput = 1 << 20
	// endOfInput is what kernels take for the end of the input.
	endOfInput = "\x04"
)

func newCellInput() *cellInput { return &cellInput{wake: make(chan struct{}, 1)} }

func (i *cellInput) stir() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// asked notes a question.
func (i *cellInput) asked() {
	i.mu.Lock()
	i.questions++
	i.mu.Unlock()
	i.stir()
}

// write takes data that begins at an offset; see [proc.Exec.WriteStdin].
func (i *cellInput) write(offset int64, data []byte, eof bool) (int64, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if offset < 0 || offset > i.offset {
		return i.offset, errs.E(errs.Invalid, "standard input was written up to %d, not %d", i.offset, offset)
	}
	data = data[min(int64(len(data)), i.offset-offset):]
	switch {
	case (i.ended || i.closed) && len(data) > 0:
		return i.offset, errs.E(errs.WrongState, "standard input is closed")
	case len(i.lines)+len(data) > maxCellInput:
		return i.offset, errs.E(errs.Exhausted, "the cell has not asked for the %d bytes that it was given", len(i.lines))
	}
	i.lines = append(i.lines, data...)
	i.offset += int64(len(data))
	i.ended = i.ended || eof
	i.stir()
	return i.offset, nil
}

// next is the answer to the oldest question, false when there is none yet.
func (i *cellInput) next() (string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.questions == 0 {
		return "", false
	}
	line, rest, whole := bytes.Cut(i.lines, []byte{'\n'})
	switch {
	case whole, i.ended && len(line) > 0:
		i.lines = rest
	case i.ended:
		line = []byte(endOfInput)
	default:
		return "", false
	}
	i.questions--
	return string(bytes.TrimSuffix(line, []byte{'\r'})), true
}

// answer answers the questions until the returned function is called.
func (i *cellInput) answer(to engine) (stop func()) {
	done := make(chan struct{})
	var answering sync.WaitGroup
	answering.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-i.wake:
			}
			for {
				line, ok := i.next()
				if !ok || to.Answer(line) != nil {
					break
				}
			}
		}
	})
	return func() {
		close(done)
		answering.Wait()
	}
}

// end is the end of what the host writes.
func (i *cellInput) end() {
	i.mu.Lock()
	i.ended = true
	i.mu.Unlock()
	i.stir()
}

// close refuses what is written from now on.
func (i *cellInput) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed, i.lines = true, nil
}
