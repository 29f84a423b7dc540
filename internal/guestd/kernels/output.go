package kernels

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/kernel"
)

// Bounds of the output of cells that waits for the host. A kernel must not
// wait, or it drops what it says, so what is over them is counted and left
// out. Text leaves room for what comes after it: the result, the error.
const (
	cellTextLimit  = 24 << 20
	cellLimit      = 32 << 20
	cellTotal      = 64 << 20 // over all cells, above their floors
	cellFloor      = 1 << 20
	maxRecord      = 16 << 20 // one rich record
	maxPrompt      = 4 << 10
	maxErrorName   = 1 << 10
	maxErrorLines  = 1000
	cellPieceBytes = 64 << 10
)

// cellOutput takes what a kernel shows at once and passes it on at the pace of
// the host.
type cellOutput struct {
	total *atomic.Int64 // what all cells hold above their floors
	now   func() time.Time
	wake  chan struct{} // a token when there is a piece, or the end

	mu     sync.Mutex
	done   chan struct{}
	pieces []cellPiece
	held   int64
	peak   int64 // of held
	ended  bool
	cut    [proc.Rich + 1]int64
}

type cellPiece struct {
	stream proc.Stream
	at     time.Time
	data   []byte
}

func newCellOutput(total *atomic.Int64, now func() time.Time) *cellOutput {
	return &cellOutput{total: total, now: now, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// text adds to a text stream, as much as there is room for.
func (o *cellOutput) text(s proc.Stream, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(text) > 0 {
		part := text[:min(len(text), cellPieceBytes)]
		if !o.take(int64(len(part)), cellTextLimit) {
			o.cut[s] += int64(len(text))
			return
		}
		if n := len(o.pieces) - 1; n >= 0 && o.pieces[n].stream == s && len(o.pieces[n].data)+len(part) <= cellPieceBytes {
			o.pieces[n].data = append(o.pieces[n].data, part...)
		} else {
			o.pieces = append(o.pieces, cellPiece{s, o.now(), []byte(part)})
		}
		text = text[len(part):]
	}
	o.stir()
}

// line adds one rich record, whole or not at all.
func (o *cellOutput) line(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.take(int64(len(data)), cellLimit) {
		o.cut[proc.Rich] += int64(len(data))
		return
	}
	o.pieces = append(o.pieces, cellPiece{proc.Rich, o.now(), data})
	o.stir()
}

// leftOut counts bytes that did not even come this far.
func (o *cellOutput) leftOut(s proc.Stream, n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cut[s] += n
}

// take books n bytes. o.mu is held.
func (o *cellOutput) take(n, limit int64) bool {
	if o.held+n > limit {
		return false
	}
	if more := aboveCellFloor(o.held+n) - aboveCellFloor(o.held); more > 0 {
		if o.total.Add(more) > cellTotal {
			o.total.Add(-more)
			return false
		}
	}
	o.held += n
	o.peak = max(o.peak, o.held)
	return true
}

func (o *cellOutput) give(n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total.Add(aboveCellFloor(o.held-n) - aboveCellFloor(o.held))
	o.held -= n
}

func aboveCellFloor(held int64) int64 { return max(held-cellFloor, 0) }

func (o *cellOutput) stir() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// pass hands the pieces over until finish was called and none is left, or ctx
// ends.
func (o *cellOutput) pass(ctx context.Context, to *proc.Output) {
	defer close(o.done)
	for {
		o.mu.Lock()
		pieces, ended := o.pieces, o.ended
		o.pieces = nil
		o.mu.Unlock()
		for i := range pieces {
			p := &pieces[i]
			err := to.Write(ctx, p.stream, p.data, p.at)
			o.give(int64(len(p.data)))
			p.data = nil
			if err != nil {
				return
			}
		}
		if len(pieces) > 0 {
			continue
		}
		if ended {
			return
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			return
		}
	}
}

// finish waits until all of it was passed on.
func (o *cellOutput) finish() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	o.stir()
	<-o.done
}

func (o *cellOutput) cuts() (out, errors, records int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cut[proc.Stdout], o.cut[proc.Stderr], o.cut[proc.Rich]
}

// wasLarge reports whether it took much memory.
func (o *cellOutput) wasLarge() bool {
	const large = 4 << 20
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.peak > large || o.cut != [proc.Rich + 1]int64{}
}

// show takes one output of the kernel. Text goes to the streams of text,
// everything else is a record.
func (c *Cell) show(o kernel.Output) {
	switch {
	case o.Stream != nil:
		s := proc.Stdout
		if o.Stream.Name == "stderr" {
			s = proc.Stderr
		}
		c.out.text(s, o.Stream.Text)
		c.out.leftOut(s, o.Cut)
	case o.Display != nil:
		c.out.bundle(o.Display.Data, o.Display.Metadata, o.Cut, func(data kernel.Bundle, metadata json.RawMessage) kernel.Output {
			return kernel.Output{Display: &kernel.Display{Data: data, Metadata: metadata, ID: o.Display.ID, Update: o.Display.Update}}
		})
	case o.Result != nil:
		c.out.bundle(o.Result.Data, o.Result.Metadata, o.Cut, func(data kernel.Bundle, metadata json.RawMessage) kernel.Output {
			return kernel.Output{Result: &kernel.Result{Count: o.Result.Count, Data: data, Metadata: metadata}}
		})
	case o.Error != nil:
		c.out.failure(*o.Error, o.Cut)
	case o.Clear != nil:
		c.out.record(kernel.Output{Clear: o.Clear})
	case o.Input != nil:
		c.out.record(kernel.Output{Input: &kernel.Input{Prompt: shorten(o.Input.Prompt, maxPrompt), Password: o.Input.Password}})
		if c.in != nil {
			c.in.asked()
		}
	}
}

// bundle adds a value in several types; one that is too large is replaced by a
// note of what it was. cut is the size of one that did not even come this far.
func (o *cellOutput) bundle(data kernel.Bundle, metadata json.RawMessage, cut int64, wrap func(kernel.Bundle, json.RawMessage) kernel.Output) {
	size := int64(len(metadata))
	for name, value := range data {
		size += int64(len(name) + len(value))
	}
	if size = max(size, cut); size <= maxRecord-(1<<10) {
		o.record(wrap(data, metadata))
		return
	}
	o.leftOut(proc.Rich, size)
	var of []string
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if len(of) < 10 {
			of = append(of, shorten(name, 100))
		}
	}
	note, _ := json.Marshal(fmt.Sprintf("[left out: %s, %d bytes; a value may have %d]", strings.Join(of, ", "), size, maxRecord))
	o.record(wrap(kernel.Bundle{"text/plain": note}, nil))
}

// failure adds an error; of a long one the beginning and the end. cut is as for
// bundle.
func (o *cellOutput) failure(e kernel.Error, cut int64) {
	o.leftOut(proc.Rich, cut)
	if e.Name == "" {
		e.Name = "Error"
	}
	if e.Value == "" && cut > 0 {
		e.Value = fmt.Sprintf("[left out: %d bytes]", cut)
	}
	e.Name = shorten(e.Name, maxErrorName)
	if len(e.Value) > maxRecord/4 {
		o.leftOut(proc.Rich, int64(len(e.Value)-maxRecord/4))
		e.Value = shorten(e.Value, maxRecord/4)
	}
	if n := len(e.Traceback); n > maxErrorLines {
		half := maxErrorLines / 2
		e.Traceback = slices.Concat(e.Traceback[:half], []string{fmt.Sprintf("[%d lines left out]", n-2*half)}, e.Traceback[n-half:])
	}
	left := maxRecord / 4
	for i, line := range e.Traceback {
		e.Traceback[i] = shorten(line, left)
		o.leftOut(proc.Rich, int64(len(line)-len(e.Traceback[i])))
		left -= len(e.Traceback[i])
	}
	o.record(kernel.Output{Error: &e})
}

// record adds a record.
func (o *cellOutput) record(r kernel.Output) {
	data, err := r.AppendLine(nil)
	if err != nil {
		return // a raw value that is no JSON: nobody can read it
	}
	if !utf8.Valid(data) {
		data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	}
	o.line(data)
}

// shorten cuts a text, at a character.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:max(most, 0)], "")
}

// WriteStdin passes lines on to the questions of the cell, at offsets as
// [proc.Exec.WriteStdin] does.
func (c *Cell) WriteStdin(offset int64, data []byte, eof bool) (int64, error) {
	if c.in == nil {
		return 0, errs.E(errs.WrongState, "the cell was started without standard input")
	}
	return c.in.write(offset, data, eof)
}
