package guestd

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

func collect(t *testing.T, o *output, from int64) []byte {
	t.Helper()
	var all []byte
	for {
		segs, _, err := o.after(from)
		if err != nil {
			t.Fatalf("after(%d) = %v", from, err)
		}
		if len(segs) == 0 {
			return all
		}
		for _, s := range segs {
			if s.offset != from {
				t.Fatalf("segment at %d, want %d: a gap", s.offset, from)
			}
			all = append(all, s.data...)
			from = s.end()
		}
	}
}

func TestOutputOffsetsCountBothStreams(t *testing.T) {
	o := newOutput(newBudget(1 << 20))
	now := time.Unix(1, 0)
	for _, w := range []struct {
		s stream
		p string
	}{{stdout, "one "}, {stdout, "two "}, {stderr, "three "}, {stdout, "four"}} {
		if err := o.write(context.Background(), w.s, []byte(w.p), now); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := string(collect(t, o, 0)), "one two three four"; got != want {
		t.Errorf("output = %q, want %q", got, want)
	}
	segs, _, _ := o.after(0)
	if len(segs) != 3 {
		t.Errorf("%d segments, want 3: pieces of one stream join", len(segs))
	}
	if err := o.ack(6); err != nil {
		t.Fatal(err)
	}
	if got, want := string(collect(t, o, 6)), "o three four"; got != want {
		t.Errorf("after ack(6) = %q, want %q", got, want)
	}
	if _, _, err := o.after(5); !errors.Is(err, errs.WrongState) {
		t.Errorf("after(5) = %v, want wrong state", err)
	}
	if err := o.ack(99); !errors.Is(err, errs.Invalid) {
		t.Errorf("ack beyond the end = %v, want invalid", err)
	}
}

func TestOutputWriterWaitsForAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput(newBudget(outputTotal))
		in := bytes.Repeat([]byte("0123456789abcdef"), 3*outputLimit/16)
		done := make(chan error, 1)
		go func() { done <- o.write(t.Context(), stdout, in, time.Now()) }()

		var got []byte
		for len(got) < len(in) {
			synctest.Wait() // the writer is blocked or done
			_, written := o.offsets()
			if held := written - int64(len(got)); held > outputLimit {
				t.Fatalf("%d bytes held, limit %d", held, outputLimit)
			}
			got = append(got, collect(t, o, int64(len(got)))...)
			if err := o.ack(int64(len(got))); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, in) {
			t.Error("the bytes that came out are not those that went in")
		}
	})
}

func TestOutputBothWritersWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput(newBudget(outputTotal))
		fill := make([]byte, outputLimit)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = o.write(ctx, stdout, fill, time.Now()) }()
		synctest.Wait()
		cancel() // it took what fits, the rest is given up
		synctest.Wait()

		done := make(chan error, 2)
		for _, s := range []stream{stdout, stderr} {
			go func() { done <- o.write(t.Context(), s, []byte("late"), time.Now()) }()
		}
		synctest.Wait()
		_, written := o.offsets()
		if err := o.ack(written); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A host that is away must not let many commands fill the agent's memory,
// and a command whose neighbours filled it must still get its floor.
func TestOutputsShareOneBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b := newBudget(2 * outputLimit)
		outs := make([]*output, 8)
		for i := range outs {
			outs[i] = newOutput(b)
			go func() { _ = outs[i].write(ctx, stdout, make([]byte, 2*outputLimit), time.Now()) }()
		}
		synctest.Wait()
		var total int64
		for i, o := range outs {
			_, written := o.offsets()
			if written < outputFloor-segmentCost {
				t.Errorf("output %d holds %d bytes, want at least the floor", i, written)
			}
			total += written
		}
		if limit := int64(2*outputLimit + len(outs)*outputFloor); total > limit {
			t.Errorf("all outputs hold %d bytes, want at most %d", total, limit)
		}
		// Freeing one lets others go on.
		was := make([]int64, len(outs))
		for i, o := range outs {
			_, was[i] = o.offsets()
		}
		outs[0].drop()
		synctest.Wait()
		moved := false
		for i, o := range outs {
			_, w := o.offsets()
			moved = moved || w > was[i]
		}
		if !moved {
			t.Error("nobody went on after room was made")
		}
		cancel()
		for _, o := range outs {
			o.drop()
		}
		synctest.Wait()
		if b.free != 2*outputLimit {
			t.Errorf("budget has %d free after all was dropped, want %d", b.free, 2*outputLimit)
		}
	})
}

func TestOutputDoneOnlyAtTheEnd(t *testing.T) {
	o := newOutput(newBudget(1 << 20))
	for i := range 3 * segmentBatch {
		if err := o.write(context.Background(), stream(1+i%2), []byte("x"), time.Unix(int64(i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	o.finish()
	var next int64
	for {
		segs, done, err := o.after(next)
		if err != nil {
			t.Fatal(err)
		}
		if len(segs) > 0 {
			next = segs[len(segs)-1].end()
		}
		if done {
			break
		}
	}
	if next != 3*segmentBatch {
		t.Errorf("done at %d, want %d", next, 3*segmentBatch)
	}
}
