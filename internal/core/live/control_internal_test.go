package live

import (
	"context"
	"errors"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

// TestCancelOfWhatBeginsInThatMoment: an agent that has not heard of a cell says so, and
// has begun it before that arrives. Whoever takes the cell for ended then lets it run for
// ever.
func TestCancelOfWhatBeginsInThatMoment(t *testing.T) {
	unknown := errs.E(errs.NotFound, "no such command")
	for name, tt := range map[string]struct {
		heard   int     // by which answer the agent has heard of it; -1: it did before
		answers []error // one after another
		want    error
	}{
		"begun in that moment":     {0, []error{unknown, nil}, nil},
		"begun after three":        {2, []error{unknown, unknown, unknown, nil}, nil},
		"known":                    {-1, []error{nil}, nil},
		"known, ended since":       {-1, []error{unknown}, unknown},
		"begun, ended in that one": {0, []error{unknown, unknown}, unknown},
		"another error":            {5, []error{context.DeadlineExceeded}, context.DeadlineExceeded},
	} {
		told, known := 0, tt.heard < 0
		err := onceKnown(t.Context(), func() bool { return known }, func() error {
			if told == len(tt.answers) {
				t.Fatalf("%s: told once more after %v", name, tt.answers)
			}
			err := tt.answers[told]
			known = known || told == tt.heard
			told++
			return err
		})
		if told != len(tt.answers) || !errors.Is(err, tt.want) {
			t.Errorf("%s: told %d times, %v; want %d, %v", name, told, err, len(tt.answers), tt.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := onceKnown(ctx, func() bool { return false }, func() error { cancel(); return unknown }); !errors.Is(err, unknown) {
		t.Errorf("after its context: %v", err)
	}
}

func TestParseSignal(t *testing.T) {
	for _, name := range []string{"SIGINT", "INT", "int", "sigint"} {
		if sig, err := parseSignal(name); err != nil || sig != 2 {
			t.Errorf("parseSignal(%q) = %d, %v, want 2", name, sig, err)
		}
	}
	for _, name := range []string{"", "SIG", "9", "SIGNOPE", "SIGSIGINT"} {
		if sig, err := parseSignal(name); err == nil {
			t.Errorf("parseSignal(%q) = %d, want an error", name, sig)
		}
	}
}
