package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestFollow(t *testing.T) {
	j := openDir(t, t.TempDir(), Limits{})
	box := sandbox.NewUID()
	l := create(t, j, box, 1)
	const followers, pieces = 20, 200
	var wg sync.WaitGroup
	for f := range followers {
		after := int64(f)
		wg.Go(func() {
			var got []byte
			var exit *sandbox.Exit
			for e, err := range j.Read(t.Context(), box, 1, after, true) {
				if err != nil {
					t.Errorf("follower %d: %v", f, err)
					return
				}
				got, exit = append(got, e.Output.Data...), e.Exit
			}
			var want []byte
			for i := range pieces {
				want = fmt.Appendf(want, "line %d\n", i)
			}
			if exit == nil || !bytes.Equal(got, want[after:]) {
				t.Errorf("follower %d: %d bytes, exit %v; want %d bytes and an exit", f, len(got), exit, len(want)-f)
			}
		})
	}
	for i := range pieces {
		write(t, l, sandbox.Stdout, fmt.Sprintf("line %d\n", i))
	}
	if err := l.Finish(exited(0)); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if l.file != nil {
		t.Error("the file is open after the last follower left")
	}
}

// TestFollowerSeesEachPieceAtOnce has writer and reader take turns: a wake-up
// that comes late or not at all would hang.
func TestFollowerSeesEachPieceAtOnce(t *testing.T) {
	j := openDir(t, t.TempDir(), Limits{})
	box := sandbox.NewUID()
	l := create(t, j, box, 1)
	write(t, l, sandbox.Stdout, "0")
	n := 0
	for e, err := range j.Read(t.Context(), box, 1, 0, true) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Exit != nil {
			break
		}
		if n++; n == 1000 {
			if err := l.Finish(exited(0)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		go func() {
			if err := l.Append(sandbox.Output{Offset: l.Size(), Stream: sandbox.Stdout, Data: []byte("x")}); err != nil {
				t.Errorf("Append: %v", err)
			}
		}()
	}
	if n != 1000 {
		t.Errorf("%d pieces, want 1000", n)
	}
}

func TestFollowersEnd(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(j *Journals, l *Log, box sandbox.UID, cancel func()) error
		want error
	}{
		{"canceled", func(_ *Journals, _ *Log, _ sandbox.UID, cancel func()) error { cancel(); return nil }, context.Canceled},
		{"closed", func(_ *Journals, l *Log, _ sandbox.UID, _ func()) error { return l.Close() }, errs.Unavailable},
		{"all closed", func(j *Journals, _ *Log, _ sandbox.UID, _ func()) error { return j.Close() }, errs.Unavailable},
		{"removed", func(j *Journals, _ *Log, box sandbox.UID, _ func()) error { return j.Remove(box) }, errs.NotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := openDir(t, t.TempDir(), Limits{})
			box := sandbox.NewUID()
			l := create(t, j, box, 1)
			write(t, l, sandbox.Stdout, "x")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			entries := 0
			for _, err := range j.Read(ctx, box, 1, 0, true) {
				if entries++; entries == 1 {
					if err != nil {
						t.Fatal(err)
					}
					if err := tt.end(j, l, box, cancel); err != nil {
						t.Fatal(err)
					}
				} else if !errors.Is(err, tt.want) {
					t.Errorf("entry %d: %v, want %v", entries, err, tt.want)
				}
			}
			if entries != 2 {
				t.Errorf("%d entries, want 2", entries)
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	j := openDir(t, t.TempDir(), Limits{})
	box := sandbox.NewUID()
	create(t, j, box, 1)
	for _, tt := range []struct {
		name       string
		box        sandbox.UID
		seq, after int64
		want       error
	}{
		{"unknown box", sandbox.NewUID(), 1, 0, errs.NotFound},
		{"unknown exec", box, 2, 0, errs.NotFound},
		{"negative offset", box, 1, -1, errs.Invalid},
		{"path for a uid", "../x", 1, 0, errs.Invalid},
	} {
		n := 0
		for _, err := range j.Read(t.Context(), tt.box, tt.seq, tt.after, true) {
			if n++; !errors.Is(err, tt.want) {
				t.Errorf("%s = %v, want %v", tt.name, err, tt.want)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d entries, want 1", tt.name, n)
		}
	}
	if _, err := j.Create("../x", 1); !errors.Is(err, errs.Invalid) {
		t.Errorf("Create with a path for a uid = %v", err)
	}
	if _, err := j.Create(box, 0); !errors.Is(err, errs.Invalid) {
		t.Errorf("Create with number 0 = %v", err)
	}
}
