package cell

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// room is a memory of so many bytes.
type room struct{ left int64 }

func (m *room) Charge(_ context.Context, n int64) error {
	if m.left -= n; m.left < 0 {
		return errs.E(errs.Unready, "no room")
	}
	return nil
}

func (m *room) Hold(ctx context.Context, n int64) (func(), error) {
	return func() { m.left += n }, m.Charge(ctx, n)
}

// TestExecutionsAreChargedForWhatTheyHold: of text only what an answer has of it,
// and all that is shown.
func TestExecutionsAreChargedForWhatTheyHold(t *testing.T) {
	journals, err := journal.Open(t.TempDir(), journal.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := journals.Close(); err != nil {
			t.Error(err)
		}
	}()
	box := sandbox.NewUID()
	cell := func(seq int64, stream sandbox.Stream, piece string, n int) sandbox.Exec {
		log, err := journals.Create(box, seq)
		if err != nil {
			t.Fatal(err)
		}
		at := int64(0)
		for range n {
			if err := log.Append(sandbox.Output{Stream: stream, Offset: at, Time: time.Now(), Data: []byte(piece)}); err != nil {
				t.Fatal(err)
			}
			at += int64(len(piece))
		}
		code := 0
		x := sandbox.Exec{
			Box: box, Seq: seq, Status: sandbox.ExecDone, StartedAt: time.Now(),
			Spec: sandbox.ExecSpec{Cell: &sandbox.Cell{Code: "x"}}, Exit: &sandbox.Exit{Reason: sandbox.EndExited, Code: &code},
		}
		if err := log.Finish(*x.Exit); err != nil {
			t.Fatal(err)
		}
		return x
	}
	text := cell(1, sandbox.Stdout, strings.Repeat("x", 64<<10), 64)
	display := `{"display":{"data":{"text/plain":"` + strings.Repeat("x", 60<<10) + `"},"metadata":{}}}` + "\n"
	rich := cell(2, sandbox.Rich, display, 32)
	for _, tt := range []struct {
		name  string
		x     sandbox.Exec
		room  int64
		shown int
		want  error
	}{
		{"4 MiB of text of which 50,000 characters are shown", text, 1 << 20, 0, nil},
		{"2 MiB of displays", rich, 12 << 20, 32, nil},
		{"2 MiB of displays without room", rich, 4 << 20, 0, errs.E(errs.Unready, "")},
	} {
		r := &Reader{Journals: journals, Budget: budget.New(&room{tt.room}), Caps: DefaultCaps()}
		e, err := r.Execution(t.Context(), tt.x, *tt.x.Exit, r.Caps)
		if errs.KindOf(err) != errs.KindOf(tt.want) || !errors.Is(err, errs.Unready) && len(e.Outputs) != tt.shown {
			t.Errorf("%s: %d outputs, %v, want %d, %v", tt.name, len(e.Outputs), err, tt.shown, tt.want)
		}
	}
}
