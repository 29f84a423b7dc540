package proc

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

func collect(t *testing.T, o *Output, from int64) []byte {
	t.Helper()
	var all []byte
	for {
		segs, _, err := o.After(from)
		if err != nil {
			t.Fatalf("after(%d) = %v", from, err)
		}
		if len(segs) == 0 {
			return all
		}
		for _, s := range segs {
			if s.Offset != from {
				t.Fatalf("segment at %d, want %d: a gap", s.Offset, from)
			}
			all = append(all, s.Data...)
			from = s.End()
		}
	}
}

func TestOutputOffsetsCountBothStreams(t *testing.T) {
	o := newOutput(newBudget(1 << 20))
	now := time.Unix(1, 0)
	for _, w := range []struct {
		s Stream
		p string
	}{{Stdout, "one "}, {Stdout, "two "}, {Stderr, "three "}, {Stdout, "four"}} {
		if err := o.Write(context.Background(), w.s, []byte(w.p), now); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := string(collect(t, o, 0)), "one two three four"; got != want {
		t.Errorf("output = %q, want %q", got, want)
	}
	segs, _, _ := o.After(0)
	if len(segs) != 3 {
		t.Errorf("%d segments, want 3: pieces of one stream join", len(segs))
	}
	if err := o.Ack(6); err != nil {
		t.Fatal(err)
	}
	if got, want := string(collect(t, o, 6)), "o three four"; got != want {
		t.Errorf("after ack(6) = %q, want %q", got, want)
	}
	if _, _, err := o.After(5); !errors.Is(err, errs.WrongState) {
		t.Errorf("after(5) = %v, want wrong state", err)
	}
	if err := o.Ack(99); !errors.Is(err, errs.Invalid) {
		t.Errorf("ack beyond the end = %v, want invalid", err)
	}
}

func TestOutputWriterWaitsForAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput(newBudget(outputTotal))
		in := bytes.Repeat([]byte("0123456789abcdef"), 3*outputLimit/16)
		done := make(chan error, 1)
		go func() { done <- o.Write(t.Context(), Stdout, in, time.Now()) }()

		var got []byte
		for len(got) < len(in) {
			synctest.Wait() // the writer is blocked or done
			_, written := o.Offsets()
			if held := written - int64(len(got)); held > outputLimit {
				t.Fatalf("%d bytes held, limit %d", held, outputLimit)
			}
			got = append(got, collect(t, o, int64(len(got)))...)
			if err := o.Ack(int64(len(got))); err != nil {
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
		go func() { _ = o.Write(ctx, Stdout, fill, time.Now()) }()
		synctest.Wait()
		cancel() // it took what fits, the rest is given up
		synctest.Wait()

		done := make(chan error, 2)
		for _, s := range []Stream{Stdout, Stderr} {
			go func() { done <- o.Write(t.Context(), s, []byte("late"), time.Now()) }()
		}
		synctest.Wait()
		_, written := o.Offsets()
		if err := o.Ack(written); err != nil {
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
		outs := make([]*Output, 8)
		for i := range outs {
			outs[i] = newOutput(b)
			go func() { _ = outs[i].Write(ctx, Stdout, make([]byte, 2*outputLimit), time.Now()) }()
		}
		synctest.Wait()
		var total int64
		for i, o := range outs {
			_, written := o.Offsets()
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
			_, was[i] = o.Offsets()
		}
		outs[0].Drop()
		synctest.Wait()
		moved := false
		for i, o := range outs {
			_, w := o.Offsets()
			moved = moved || w > was[i]
		}
		if !moved {
			t.Error("nobody went on after room was made")
		}
		cancel()
		for _, o := range outs {
			o.Drop()
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
		if err := o.Write(context.Background(), Stream(1+i%2), []byte("x"), time.Unix(int64(i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	o.finish()
	var next int64
	for {
		segs, done, err := o.After(next)
		if err != nil {
			t.Fatal(err)
		}
		if len(segs) > 0 {
			next = segs[len(segs)-1].End()
		}
		if done {
			break
		}
	}
	if next != 3*segmentBatch {
		t.Errorf("done at %d, want %d", next, 3*segmentBatch)
	}
}

// TestOutputOfACopyCountsFromNothing: what it held goes, and its room with it.
func TestOutputOfACopyCountsFromNothing(t *testing.T) {
	b := newBudget(1 << 20)
	o := newOutput(b)
	write := func(p []byte) {
		t.Helper()
		if err := o.Write(context.Background(), Stdout, p, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	write(make([]byte, 100<<10))
	o.restart()
	if acked, written := o.Offsets(); acked != 0 || written != 0 || b.free != 1<<20 {
		t.Errorf("after restart the offsets are %d and %d, and %d of the budget are free", acked, written, b.free)
	}
	write([]byte("from now on"))
	if got := string(collect(t, o, 0)); got != "from now on" {
		t.Errorf("output = %q", got)
	}
}
